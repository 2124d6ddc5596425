public import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// The daemon: one thread, one event loop, one step.
///
/// A step takes one fact or request to the life cycle, tells it the time, and carries out what it
/// answers. Facts that come of that wait in a queue until the step is over.
public final class Daemon {
    let loop: EventLoop
    let bus: Bus
    let journal: Journal
    let proc = Proc()
    let connections: Connections
    let processes: Processes
    let sensor: StopSensor
    let delivery: Delivery
    let announcer: Announcer
    let executor: Executor
    private let core: Core
    private let source: Configuration.Source
    private var isStepping = false
    /// Calls that are answered when their application has come to rest.
    private var waiting: [ApplicationNumber: [Waiting]] = [:]
    private var timer: Timer?
    private var sources: [Source] = []
    private var slots: [Slot] = []

    var machine: Machine { core.machine }

    /// How long `Suspend` and `Resume` wait for a stop to be complete before they answer all the same.
    private static let longestWait: Microseconds = 500_000

    /// Puts everything together; nothing is on the bus yet.
    public init(
        loop: EventLoop, bus: Bus, configuration source: Configuration.Source, journal: Journal
    ) throws {
        self.loop = loop
        self.bus = bus
        self.journal = journal
        self.source = source
        let configuration = Configuration(reading: source)
        let core = Core(settings: configuration.settings)
        self.core = core
        connections = Connections(bus: bus, proc: proc, journal: journal) { core.report(.disconnected($0)) }
        processes = try Processes(loop: loop, report: core.report)
        sensor = try StopSensor(
            loop: loop, proc: proc, now: { Self.now }, application: core.application, report: core.report)
        delivery = Delivery(bus: bus, connections: connections, journal: journal) { connection in
            guard let number = core.machine.owner(of: connection.lineage),
                let application = core.application(number)
            else { return true }
            return !application.isStopped && !application.isPending
        }
        announcer = Announcer(
            delivery: delivery, connections: connections, journal: journal,
            delegate: { core.application($0)?.delegate })
        executor = try Executor(
            loop: loop, proc: proc, processes: processes, sensor: sensor, announcer: announcer,
            journal: journal, now: { Self.now }, report: core.report)
        announcer.session = { [unowned self] in session(of: $0) }
        core.wake = { [unowned self] in if !isStepping { step() } }
        timer = try loop.timer { core.report(.timePassed) }
        complain(configuration)
    }

    /// Puts the objects on the bus, takes the name and watches what there is to watch.
    public func start() throws(BusFailure) {
        do {
            try sensor.openTrace()
        } catch {
            journal.log(.notice, "stops are found by polling: \(error)")
        }
        slots.append(try bus.addFilter { [unowned self] in meet($0) })
        let manager = managerInterface()
        let application = applicationInterface()
        announcer.managerInterface = manager
        announcer.applicationInterface = application
        slots.append(try bus.add(manager, at: BusNames.root))
        slots.append(try bus.add(reporterInterface(), at: BusNames.root))
        slots.append(try bus.addObjectManager(at: BusNames.root))
        slots.append(
            try bus.addFallback(application, under: BusNames.applications) {
                [unowned self] path throws(MethodError) in try find(path)
            })
        slots.append(try bus.addNodes(under: BusNames.applications) { [unowned self] in visiblePaths() })
        try bus.onDisconnect { [unowned self] in
            journal.log(.error, "the bus has gone away")
            stop(with: 1)
        }
        for signal in [SIGTERM, SIGINT] {
            sources.append(try loop.onSignal(signal) { [unowned self] in stop(with: 0) })
        }
        sources.append(try loop.onSignal(SIGHUP) { [unowned self] in reload() })
        try bus.attach(to: loop)
        do {
            try bus.requestName(BusNames.service)
        } catch  where error.errno == EEXIST {
            throw BusFailure(
                operation: "take the name", subject: BusNames.service, errno: EEXIST,
                message: "another appstated has it")
        }
        try loop.watchdog(enabled: true)
        Service.notify("READY=1\nSTATUS=Stops are found by \(sensor.detection.rawValue)")
    }

    /// Ends in good order: what we suspended runs on.
    private func stop(with code: Int32) {
        Service.notify("STOPPING=1")
        executor.resumeAll(sparing: { machine.applications[$0]?.foreignStop != nil })
        loop.exit(code: code)
    }

    /// Reads the configuration again; no application is lost.
    func reload() {
        Service.notifyReloading(at: Self.now)
        let configuration = Configuration(reading: source)
        complain(configuration)
        core.report(.configured(configuration.settings))
        Service.notify("READY=1")
    }

    private func complain(_ configuration: Configuration) {
        for complaint in configuration.complaints { journal.log(.warning, complaint.description) }
    }

    // MARK: The step

    /// The only clock of the daemon.
    private static var now: Microseconds { Clock.monotonicMicroseconds }

    /// Takes a request to the life cycle. `answered` is called before its effects are carried out, so that
    /// the caller has its answer before the signals that follow from it.
    func perform(_ request: Request, _ answered: (Answer) -> Void = { _ in }) throws(MethodError) {
        let answer: Answer
        let effects: [Effect]
        do {
            (answer, effects) = try core.machine.perform(request, at: Self.now)
        } catch {
            throw MethodError(error)
        }
        answered(answer)
        step(effects)
    }

    private func step(_ first: [Effect] = []) {
        precondition(!isStepping, "a step within a step")
        isStepping = true
        for effect in first { executor.carryOut(effect) }
        while !core.facts.isEmpty {
            let fact = core.facts.removeFirst()
            for effect in core.machine.handle(fact, at: Self.now) { executor.carryOut(effect) }
        }
        isStepping = false
        delivery.resyncReachable()
        answerWaiting()
        arm()
    }

    private func arm() {
        let deadlines = [core.machine.nextDeadline(), waiting.values.lazy.joined().map(\.until).min()]
        if let next = deadlines.compactMap({ $0 }).min() {
            timer?.arm(at: next)
        } else {
            timer?.disarm()
        }
    }

    // MARK: Calls that wait

    private struct Waiting {
        let call: PendingCall
        let until: Microseconds
        /// It was to suspend: that it could not be is an error.
        let wantsHold: Bool
    }

    /// Answers the call once the stop or continuation that was ordered has been seen.
    func answer(_ call: PendingCall, whenAtRest number: ApplicationNumber, wantsHold: Bool) {
        waiting[number, default: []].append(
            Waiting(call: call, until: Self.now + Self.longestWait, wantsHold: wantsHold))
        answerWaiting()
        arm()
    }

    private func answerWaiting() {
        if waiting.isEmpty { return }
        let now = Self.now
        for (number, calls) in waiting {
            let isAtRest = machine.applications[number]?.isPending != true
            let ready = calls.filter { isAtRest || $0.until <= now }
            guard !ready.isEmpty else { continue }
            let rest = calls.filter { !isAtRest && $0.until > now }
            waiting[number] = rest.isEmpty ? nil : rest
            for entry in ready {
                guard let application = machine.applications[number] else {
                    entry.call.fail(MethodError(.noSuchApplication, "Application \(number) has ended"))
                    continue
                }
                if entry.wantsHold, application.holds.isEmpty {
                    let why = application.objection ?? "it was resumed meanwhile"
                    entry.call.fail(MethodError(.notSuspendable(number, why)))
                } else {
                    entry.call.reply()
                }
            }
        }
    }

    // MARK: Connections

    /// dbus-api, "Message bodies other than saved state".
    private static let mostOfArguments = 65_536
    /// One set of at most 4,096 windows, with titles.
    private static let mostOfWindows = 1 << 20

    /// Who calls is settled before the call is dispatched; and GetAll and GetManagedObjects subscribe their
    /// caller to the changes of what they return.
    private func meet(_ message: borrowing Message) -> Bool {
        guard message.isMethodCall, let sender = message.sender else { return false }
        let isSet = message.interface == BusNames.reporter && message.member == "ReplaceWindows"
        let limit = isSet ? Self.mostOfWindows : Self.mostOfArguments
        // Before anything is made of it: a stranger's megabytes are not worth reading.
        if message.isLarger(than: limit) {
            message.refuse(MethodError(.limitsExceeded, "The arguments are more than \(limit) bytes"))
            return true
        }
        let connection: Connection
        do {
            connection = try connections.connection(named: sender)
        } catch {
            // It has left already: there is nobody to answer.
            journal.log(.debug, "call of \(sender): \(error)")
            return true
        }
        switch (message.interface, message.member, message.path) {
        case (BusNames.objectManager?, "GetManagedObjects"?, BusNames.root?):
            connection.followsObjects = true
        case (BusNames.properties?, "GetAll"?, BusNames.root?):
            connection.followsManager = true
        case (BusNames.properties?, "GetAll"?, let path?):
            if let application = try? visibleApplication(at: path, to: connection) {
                connection.followedApplications.insert(application.number)
            }
        default: break
        }
        return false
    }

    /// The session of a connection: logind's, else its user's display session, else all that its user runs.
    func session(of connection: Connection) -> SessionKey {
        machine.session(ofReporter: connection.name)
            ?? session(ofProcess: connection.pid, user: connection.user)
    }

    func session(ofProcess pid: Int32, user: UInt32) -> SessionKey {
        (Login.session(ofProcess: pid) ?? Login.displaySession(ofUser: user)).map(SessionKey.login)
            ?? .user(user)
    }

    // MARK: Objects

    private func find(_ path: String) throws(MethodError) -> Bool {
        if path == BusNames.applications { return false }
        _ = try visibleApplication(at: path, to: try caller())
        return true
    }

    private func visiblePaths() -> [String] {
        guard let connection = try? caller() else { return [] }
        return machine.applications.values
            .filter { maySee($0, connection) }
            .map(\.number).sorted()
            .map { BusNames.path(ofApplication: $0.rawValue) }
    }
}

public import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
public import Linux
public import Systemd

/// The daemon: one thread, one event loop, one step.
///
/// A step passes one fact or request and the time to the life cycle, records the resulting effects and
/// carries them out. Facts that result from them wait in a queue until the step is over.
public final class Daemon {
    let loop: EventLoop
    let bus: Bus
    let journal: Journal
    let proc = Proc()
    let connections: Connections
    let processes: Processes
    let table: ApplicationTable
    let sensor: StopSensor
    let delivery: Delivery
    let announcer: Announcer
    let executor: Executor
    let freezer: Freezer
    let objections: ObjectionSensor
    let resources: Resources
    let pressure: PressureSensor
    private let lowMemory: LowMemoryMonitor
    private let logind: BusPeer
    let inhibitors: Inhibitors
    let openInhibitors: OpenInhibitors
    let sessions: SessionSensor
    let core: Core
    let state: RuntimeState?
    /// For what blocks: disks, paging out and releasing memory, reading what an application has open.
    private let worker: Worker
    /// nil: nothing is kept.
    let keeper: Keeper?
    let agents: Agents
    let launches: Launches
    /// Processes that have ended, and whose session agents were asked how they ended.
    var exits: Set<ProcessID> = []
    /// The id of the bus that the daemon is on.
    private var busID: String?
    private let source: Configuration.Source
    private let stored: [(name: String, descriptor: Int32)]
    let records: Records
    /// What the previous daemon held and could not be resumed yet.
    let thaws: Retry<String>
    private let handed: HandedOver
    private var isStepping = false
    /// Calls that are answered when their application has settled.
    private var waiting: [ApplicationNumber: [Waiting]] = [:]
    private var timer: Timer?
    private(set) var time: TimeSensor?
    let triggers: TriggerSensor
    /// Restarts the daemon to get the kernel's events again.
    private var renewal: Timer?
    /// How many lines of the configuration were invalid when it was read last.
    private(set) var refusedLines = 0
    private let began = Daemon.now
    private var sources: [Source] = []
    private var slots: [Slot] = []

    /// Until then a connection's session is remembered only briefly: logind sends its signal before it has written all
    /// its files.
    private var sessionsSettled: Microseconds = 0
    private static let settlingOfSessions: Microseconds = 1_000_000
    private static let memoryOfUnsettledSessions: Microseconds = 100_000

    /// How long `Suspend` and `Resume` wait for a stop to be complete before they answer anyway.
    private static let longestWait: Microseconds = 500_000

    /// Creates all parts; nothing is on the bus yet.
    ///
    /// - Parameters:
    ///   - runtimeDirectory: where the daemon records the data that must survive when it is killed; nil:
    ///     nowhere.
    ///   - stateDirectory: where the daemon keeps the data that must survive a reboot; nil: nowhere.
    ///   - stored: the descriptors that the service manager kept from the previous daemon.
    ///   - handed: the descriptors that were opened for the daemon with more privileges than its own.
    public init(
        loop: EventLoop, bus: Bus, configuration source: Configuration.Source,
        runtimeDirectory: String?, stateDirectory: String?,
        stored: [(name: String, descriptor: Int32)], handed: HandedOver, journal: Journal
    ) throws {
        self.handed = handed
        self.loop = loop
        self.bus = bus
        self.journal = journal
        self.source = source
        self.stored = stored
        let configuration = Configuration(reading: source)
        let core = Core(settings: configuration.settings)
        self.core = core
        state = RuntimeState(directory: runtimeDirectory, journal: journal)
        // This prevents an appstated --release that is run by hand from releasing the holds of this daemon, and waits
        // for one that is under way.
        _ = state?.lock(alone: false)
        let worker = try Worker(name: "appstated-work")
        self.worker = worker
        keeper = Keeper(
            files: KeptFiles(directories: stateDirectory), boot: (try? proc.bootID()) ?? "", state: state,
            worker: worker, journal: journal)
        connections = Connections(bus: bus, proc: proc, journal: journal)
        agents = Agents(bus: bus, connections: connections, journal: journal)
        launches = try Launches(loop: loop)
        triggers = TriggerSensor(bus: bus, journal: journal, report: core.report)
        thaws = try Retry(loop: loop, now: { Self.now })
        processes = try Processes(loop: loop, report: core.report)
        let hierarchy = UnifiedHierarchy.find()
        let table = ApplicationTable(proc: proc, hierarchy: hierarchy, core: core)
        self.table = table
        records = Records(state: state, core: core, table: table, now: { Self.now })
        let standings = Standings(loop: loop, proc: proc, hierarchy: hierarchy, core: core, table: table)
        sensor = try StopSensor(
            loop: loop, proc: proc, now: { Self.now }, core: core, handed: handed, standing: standings.read)
        logind = BusPeer(Logind.name, bus: bus, journal: journal)
        inhibitors = Inhibitors(logind: logind, now: { Self.now })
        let objections = try ObjectionSensor(
            loop: loop, proc: proc, worker: worker, now: { Self.now }, core: core, table: table,
            standings: standings, handed: handed, inhibitors: inhibitors)
        self.objections = objections
        openInhibitors = OpenInhibitors(loop: loop) { core.report(.uninhibited($0, $1)) }
        freezer = try Freezer(
            loop: loop, proc: proc, journal: journal, now: { Self.now }, core: core, table: table,
            records: records, standings: standings, sensor: sensor, objections: objections,
            scopes: Scopes(agents: agents, proc: proc))
        delivery = Delivery(
            bus: bus, connections: connections, journal: journal,
            isReachable: { connection in
                guard let application = connection.application(in: core.machine).flatMap(core.application)
                else { return true }
                return !application.isStopped && !application.isPending
            })
        announcer = Announcer(
            delivery: delivery, connections: connections, journal: journal,
            delegate: { core.application($0)?.delegate })
        resources = Resources(
            proc: proc, journal: journal, core: core, applications: table, records: records)
        resources.configure(configuration.resources, configuration.settings.mode)
        let pressure = PressureSensor(
            loop: loop, proc: proc, handed: handed, journal: journal,
            front: { source in
                guard let application = core.machine.front(of: source).flatMap({ table[$0] }) else {
                    return nil
                }
                return FrontSensor.Front(number: application.number) { table.ownCgroup(of: application) }
            }, hasEnded: { core.machine.hasEnded(for: $0) }, report: core.report)
        self.pressure = pressure
        lowMemory = LowMemoryMonitor(bus: bus, journal: journal)
        sessions = try SessionSensor(
            loop: loop, logind: logind, journal: journal, now: { Self.now }, report: core.report,
            isOfConcern: { core.machine.sessionsOfConcern.contains($0) })
        let reclaimer = Reclaimer(
            loop: loop, proc: proc, worker: worker, journal: journal, announcer: announcer,
            now: { Self.now }, table: table, standings: standings, freezer: freezer,
            available: { [unowned pressure] in pressure.available }, report: core.report)
        executor = Executor(
            table: table, records: records, keeper: keeper, proc: proc, processes: processes, sensor: sensor,
            freezer: freezer, inhibitors: openInhibitors,
            announcer: announcer, resources: resources, reclaimer: reclaimer, lowMemory: lowMemory,
            pressure: pressure, journal: journal,
            relaunch: { [unowned core] in core.relaunches.append($0) },
            launch: { [unowned core] in core.dueLaunches.append($0) },
            scheduleChanged: { [unowned core, keeper] owner in
                keeper?.setLaunches(core.machine.scheduledLaunches(of: owner), of: KeptID(owner))
            }, report: core.report)
        connections.left = { [unowned self] in
            agents.departed($0)
            core.report(.disconnected($0))
        }
        announcer.session = { [unowned self] in session(of: $0) }
        announcer.isOwn = { [unowned self] in isOwn($0, $1) }
        sessions.listChanged = { [unowned self] in forgetSessions() }
        core.wake = { [unowned self] in if !isStepping { step() } }
        timer = try loop.timer { core.report(.timePassed) }
        sources.append(try loop.watch(worker.descriptor) { [worker] _ in worker.complete() })
        complain(configuration)
    }

    /// Exports the objects on the bus, acquires the name and begins to watch all sources of events.
    public func start() throws(BusFailure) {
        // This must come before the events to which it applies are opened.
        watchCPUs()
        journal.attempt(.notice, "stops are found by polling") { try sensor.openTrace() }
        processes.howEnded = { [unowned self] in askExit(of: $0, $1) }
        processes.wasChosen = { $1(false) }
        slots.append(try bus.addFilter { [unowned self] in intercept($0) })
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
        slots.append(
            try bus.addNodes(under: BusNames.applications) { [unowned self] in visiblePaths(below: $0) })
        try bus.onDisconnect { [unowned self] in lostBus() }
        busID = try? bus.id()
        for signal in [SIGTERM, SIGINT] {
            sources.append(try loop.onSignal(signal) { [unowned self] in stop(with: 0) })
        }
        sources.append(try loop.onSignal(SIGUSR1) { [unowned self] in makeWay() })
        sources.append(try loop.onSignal(SIGHUP) { [unowned self] in reload() })
        try logind.onSignal(Logind.rule("PrepareForSleep")) { [unowned self] in slept($0) }
        try logind.onSignal(Logind.rule("PrepareForShutdown")) { [unowned self] in
            if let begins = try? $0.readBool() { core.report(.shutdownPrepared(begins)) }
        }
        try sessions.start()
        logind.onOwnerChange { [unowned self] in
            // The previous logind's announcement of a shutdown is no longer valid.
            if logind.owner != nil { core.report(.shutdownPrepared(false)) }
        }
        try logind.start()
        try bus.attach(to: loop)
        try takeName()
        // The owner of the name also owns the files. Calls wait until the loop runs.
        keeper?.open()
        if let state {
            // Facts about one application wait until all applications are restored.
            isStepping = true
            let restored = restore(from: state, stored)
            isStepping = false
            step()
            lookAgain(at: restored)
            for session in core.machine.sessionsOfConcern { sessions.attend(to: session) }
        }
        keeper?.whenOpen { [unowned self] in keepAll() }
        try loop.beginWatchdog()
        let failure = Service.notify("READY=1\nSTATUS=Stops are found by \(sensor.detection.rawValue)")
        guard failure == 0 else {
            // Otherwise the service manager would wait for the daemon forever.
            throw BusFailure(operation: "notify", subject: "the service manager", errno: failure)
        }
        thawMarked()
        // What no client waits for. Events wait until the loop runs.
        watchKills()
        watchTime()
        pressure.start()
        configurePressure()
    }

    /// The disk has answered: from now on, the history and saved state of all applications that run are kept.
    private func keepAll() {
        guard let keeper else { return }
        for application in table.all.sorted(by: { $0.number < $1.number }) where !application.isKept {
            if let kept = application.toBeKept { application.isKept = keeper.begin(kept) }
        }
        keeper.settle()
        let launches = keeper.launches
        if !launches.isEmpty { core.report(.scheduled(launches)) }
    }

    /// A killed daemon keeps the name for as long as one of its threads waits in the kernel, for example for the FUSE
    /// server whose file it closes.
    private func takeName() throws(BusFailure) {
        do {
            return try bus.requestName(BusNames.service, isReplaceable: true)
        } catch  where error.errno == EEXIST {
            guard let owner = try? bus.processID(ofOwner: BusNames.service), isEnding(owner) else {
                throw BusFailure(
                    operation: "take the name", subject: BusNames.service, errno: EEXIST,
                    message: "another appstated has it")
            }
            journal.log(.warning, "process \(owner), the previous appstated, cannot end: taking its name")
        }
        try bus.requestName(BusNames.service, isReplaceable: true, replaces: true)
    }

    /// Whether a daemon has been killed or has exited. Its first thread never ends alone.
    private func isEnding(_ pid: Int32) -> Bool {
        guard let leader = try? proc.stat(pid) else { return false }
        return leader.state == .zombie || (try? proc.isDying(leader.identity)) == true
    }

    private func watchKills() {
        journal.attempt(.info, "out-of-memory kills by the kernel cannot be distinguished from other kills") {
            let killer = try OOMSensor(loop: loop, proc: proc, handed: handed, now: { Self.now })
            processes.wasChosen = { [core] process, answer in
                // The reason is already known for an application that is being ended.
                if core.machine.application(of: process)?.isTerminating == true { return answer(false) }
                killer.wasChosen(process.pid, answer)
            }
        }
    }

    private func watchTime() {
        journal.attempt(.warning, "changes of the system time are not detected") {
            time = try TimeSensor(
                loop: loop, journal: journal, report: { [core] in core.report(.timeChanged($0)) },
                alarmed: { [core] in core.report(.realTime($0)) })
        }
        watchTriggers()
    }

    /// Perf events do not cover a CPU that comes online after they were opened.
    private func watchCPUs() {
        journal.attempt(.warning, "CPUs that come online are not detected") {
            renewal = try loop.timer { [unowned self] in renewEvents() }
            let cpus = try CPUWatch(handed: handed)
            sources.append(
                try loop.watch(cpus.descriptor) { [unowned self] _ in if cpus.take() { cpusChanged() } })
        }
        sensor.detectionChanged = { [unowned self] in
            announcer.detectionChanged()
            Service.notify("STATUS=Stops are found by \(sensor.detection.rawValue)")
        }
    }

    private func cpusChanged() {
        guard sensor.isDeaf else { return }
        renewEvents()
        sensor.rescan()
    }

    /// systemd freezes sessions for system sleep and thaws them after it. This also thaws cgroups that the
    /// daemon had frozen; they are frozen again here.
    private func slept(_ message: borrowing Message) {
        guard let begins = try? message.readBool() else { return }
        if begins { return letDelayersRun() }
        if sensor.isDeaf { renewEvents() }
        sensor.rescan()
    }

    /// The perf events do not cover some CPU: it was offline when they were opened, or has been offline
    /// since, for example while the machine slept. Only a restart hands over new descriptors. The daemon does
    /// not restart more often than the service manager permits, and until then finds stops by polling.
    private func renewEvents() {
        if handed.names.isEmpty {
            journal.attempt(.notice, "stops are found by polling") { try sensor.renewTrace() }
            objections.renewEvents()
            pressure.renewAlarm()
            watchKills()
            return
        }
        let earliest = began + Self.leastUptime
        if Service.isSupervised, Self.now >= earliest {
            journal.log(.notice, "the kernel's events are not received from every CPU: restarting")
            return makeWay()
        }
        if sensor.detection == .events {
            journal.log(
                .notice, "the kernel's events are not received from every CPU: stops are found by polling")
            sensor.giveUpTrace()
        }
        if Service.isSupervised { renewal?.arm(at: earliest) }
    }

    /// Uses a fifth of the starts that the unit's limit allows (StartLimitIntervalSec=, StartLimitBurst=).
    private static let leastUptime: Microseconds = 150_000_000

    /// Shuts down: the applications that the daemon suspended run again, with their original resource values.
    private func stop(with code: Int32) {
        Service.notify("STOPPING=1")
        keeper?.note(statesOfKept)
        isStepping = true
        executor.carryOut(core.machine.relinquish(at: Self.now))
        isStepping = false
        step()
        freezer.finish()
        resources.putBackAll()
        records.writeAll()
        finishKeeping()
        loop.exit(code: code)
    }

    /// Waits for the disk. No fact is handled any more: the next daemon looks for itself.
    private func finishKeeping() {
        core.wake = {}
        keeper?.finish()
    }

    private var statesOfKept: [(kept: KeptID, state: LifeCycleState)] {
        core.machine.applications.values.compactMap { application in
            table[application.number]?.kept.map { ($0, application.state) }
        }
    }

    /// Exits for the next daemon, which is about to be started and takes over everything as it is recorded (§
    /// 5).
    private func makeWay() {
        Service.notify("STOPPING=1")
        records.writeDelayed()
        freezer.finish()
        finishKeeping()
        loop.exit(code: 0)
    }

    /// The loop's exit code when the program must be executed again in the same process.
    public static let anew: Int32 = 256
    /// A bus that hangs counts as gone. In microseconds. This is at most a quarter of `WatchdogSec=`, because
    /// the service manager may not have heard from us for the other three quarters.
    private static let patienceWithBus: UInt64 = 7_000_000

    /// If the bus disconnects the daemon and continues to run, for example because of a message that it
    /// rejects, no hold needs to be given up: over the next connection the daemon takes over everything as it
    /// is recorded. The service manager does not count this as a start; it would give up after a few. If the
    /// bus itself is gone, every client that could resume suspended applications is gone, too.
    private func lostBus() {
        let isThere = (try? Bus.system())?.isThere(busID, within: Self.patienceWithBus) ?? false
        guard state != nil, isThere else {
            journal.log(.error, "the bus has gone away")
            return stop(with: 1)
        }
        journal.log(.error, "the bus has disconnected appstated; it restores its state on a new connection")
        records.writeDelayed()
        freezer.finish()
        finishKeeping()
        processes.dropStored()
        loop.exit(code: Self.anew)
    }

    /// Reads the configuration again; no application is lost.
    func reload() {
        Service.notify(Service.reloading(at: Self.now))
        let configuration = Configuration(reading: source)
        let before = (core.machine.settings.mode, refusedLines)
        complain(configuration)
        core.report(.configured(configuration.settings))
        announcer.configurationChanged(
            (core.machine.settings.mode != before.0 ? [.mode] : [])
                + (refusedLines != before.1 ? [.refusedLines] : []))
        resources.configure(configuration.resources, configuration.settings.mode)
        configurePressure()
        Service.notify("READY=1")
    }

    private func configurePressure() {
        pressure.configure(core.machine.settings.pressure)
        lowMemory.configure(core.machine.settings.pressure.servesLowMemoryMonitor)
    }

    private func complain(_ configuration: Configuration) {
        refusedLines = configuration.complaints.count
        for complaint in configuration.complaints { journal.log(.warning, complaint.description) }
        if configuration.isModeUnknown {
            journal.log(.warning, "Mode= is invalid: appstated observes, and suspends nothing by itself")
        }
    }

    // MARK: The step

    /// The daemon's only clock.
    static var now: Microseconds { Clock.monotonicMicroseconds }

    /// Passes a request to the life cycle. The effects are recorded, then `answered` is called, then they are
    /// carried out: the caller gets its answer before the signals, and the answer describes what is already
    /// recorded.
    ///
    /// - Parameter enroll: called before anything is recorded.
    func perform(
        _ request: Request, enroll: (Answer) -> Void = { _ in }, _ answered: (Answer) -> Void = { _ in }
    ) throws(MethodError) {
        let answer: Answer
        let effects: [Effect]
        do {
            (answer, effects) = try core.machine.perform(request, at: Self.now)
        } catch {
            throw MethodError(error)
        }
        isStepping = true
        enroll(answer)
        executor.carryOut(effects, isLazy: request.isReport) { answered(answer) }
        isStepping = false
        step()
    }

    func step() {
        precondition(!isStepping, "a step within a step")
        isStepping = true
        while !core.facts.isEmpty {
            let fact = core.facts.removeFirst()
            // The next daemon looks for itself which connections are gone.
            let isLazy = if case .disconnected = fact { true } else { false }
            executor.carryOut(core.machine.handle(fact, at: Self.now), isLazy: isLazy)
        }
        records.writeDue()
        executor.announceChanges()
        isStepping = false
        delivery.resyncReachable()
        answerWaiting()
        arm()
        endIfWorkerHangs()
        let relaunches = core.relaunches
        core.relaunches = []
        for application in relaunches { relaunch(application) }
        let due = core.dueLaunches
        core.dueLaunches = []
        for launch in due { launchDue(launch) }
        watchTriggers()
        launches.stepHasEnded(
            isLaunching: { core.application($0)?.isBeingLaunched == true },
            isEnding: { core.application($0).map(isEnding) == true })
    }

    /// The longest that a job of the worker may take: a large application may be paged out to a slow disk.
    private static let longestJob: Microseconds = 300_000_000

    /// A dead file server, or a user who has mounted something, can make the worker wait forever for a process. Then
    /// nothing is saved any more, and policy suspends nothing: only a new daemon ends that.
    private func endIfWorkerHangs() {
        guard Service.isSupervised, worker.hangs(longerThan: Self.longestJob) else { return }
        journal.log(.error, "a disk or a process does not answer: restarting")
        makeWay()
    }

    private func arm() {
        let deadlines = [
            core.machine.nextDeadline, waiting.values.lazy.compactMap(\.first?.until).min(),
            records.nextDue,
        ]
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
        /// The call asked for a suspension: if that was impossible, it fails.
        let wantsHold: Bool
        let reply: (borrowing Message) throws -> Void
    }

    /// Answers the call once the ordered stop or continuation has been observed.
    func answer(
        _ call: PendingCall, whenAtRest number: ApplicationNumber, wantsHold: Bool,
        _ reply: @escaping (borrowing Message) throws -> Void = { _ in }
    ) {
        waiting[number, default: []].append(
            Waiting(call: call, until: Self.now + Self.longestWait, wantsHold: wantsHold, reply: reply))
        answerWaiting()
        arm()
    }

    private func answerWaiting() {
        if waiting.isEmpty { return }
        let now = Self.now
        for (number, calls) in waiting {
            let isAtRest = core.machine.applications[number]?.isPending != true
            // The first call has waited longest.
            guard isAtRest || calls.first.map({ $0.until <= now }) == true else { continue }
            let ready = calls.filter { isAtRest || $0.until <= now }
            let rest = calls.filter { !isAtRest && $0.until > now }
            waiting[number] = rest.isEmpty ? nil : rest
            for entry in ready {
                guard let application = core.machine.applications[number] else {
                    entry.call.fail(MethodError(.noSuchApplication, "Application \(number) has ended"))
                    continue
                }
                if entry.wantsHold, application.holds.isEmpty {
                    let why = application.objection ?? "it was resumed meanwhile"
                    entry.call.fail(MethodError(.notSuspendable(number, why)))
                } else {
                    entry.call.reply(entry.reply)
                }
            }
        }
    }

    // MARK: Connections

    /// The session of a connection: logind's, else its user's display session, else all that its user runs.
    func session(of connection: Connection) -> SessionKey {
        core.machine.session(ofReporter: connection.name)
            ?? ownSession(of: connection)
    }

    /// Each subscriber's is needed whenever the focus changes.
    private func ownSession(of connection: Connection) -> SessionKey {
        let now = Self.now
        if let known = connection.session,
            known.readAt >= sessionsSettled || now < known.readAt + Self.memoryOfUnsettledSessions
        {
            return known.key
        }
        let session = session(ofProcess: connection.pid, user: connection.user)
        connection.session = (session, now)
        return session
    }

    private func forgetSessions() {
        sessionsSettled = Self.now + Self.settlingOfSessions
        for connection in connections.all { connection.session = nil }
    }

    /// The process's own session if that belongs to its user, else its user's display session. A process that
    /// runs as a user other than its session's (su(1)) does not report for that session. Root's windows may
    /// be shown anywhere.
    func session(ofProcess pid: Int32, user: UInt32) -> SessionKey {
        if let own = Login.session(ofProcess: pid), let owner = Login.owner(ofSession: own),
            owner == user || user == 0
        {
            return .login(own)
        }
        return Login.displaySession(ofUser: user).map(SessionKey.login) ?? .user(user)
    }

    // MARK: Objects

    private func find(_ path: String) throws(MethodError) -> Bool {
        if path == BusNames.applications { return false }
        let connection = try caller()
        // The usual case, for which no process is examined.
        if let number = BusNames.applicationNumber(inPath: path),
            let application = table[ApplicationNumber(number)],
            connection.mayManage(user: application.user)
        {
            return true
        }
        _ = try visibleApplication(at: path, to: connection)
        return true
    }

    private func visiblePaths(below path: String) -> [String] {
        // An application has no nodes below it.
        guard let connection = try? caller(), !path.hasPrefix(BusNames.applications + "/") else { return [] }
        return possiblyVisible(to: connection)
            .filter { core.application($0).map { maySee($0, connection) } ?? false }
            .map { BusNames.path(ofApplication: $0.rawValue) }
    }

    /// The applications that a connection might be allowed to see, in order: no process is examined for this.
    /// `maySee` decides.
    func possiblyVisible(to connection: Connection) -> [ApplicationNumber] {
        let numbers: [ApplicationNumber]
        switch connection.confinement {
        case .none:
            numbers = table.all.filter { connection.mayManage(user: $0.user) }.map(\.number)
        case .within:
            numbers = [core.machine.owner(of: connection.lineage)].compactMap { $0 }
        case .proxy(let unit):
            numbers = table.all.filter { isOfProxy($0, unit, of: connection) }.map(\.number)
        case .unknown:
            numbers = []
        }
        return numbers.sorted()
    }
}

extension Bus {
    /// Whether this is the bus with that id.
    fileprivate func isThere(_ id: String?, within patience: UInt64) -> Bool {
        guard let id else { return false }
        return (try? self.id(timeout: patience)) == id
    }
}

public import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
public import Linux
public import Systemd

/// The daemon: one thread, one event loop, one step.
///
/// A step passes the facts of an event, or a request, and the time to the life cycle, records the resulting effects and
/// carries them out. Facts that result from them wait in a queue for their turn.
public final class Daemon {
    let loop: EventLoop
    let bus: Bus
    let journal: Journal
    let proc = Proc()
    let connections: Connections
    let access: Access
    let properties: Properties
    let processes: Processes
    let table: ApplicationTable
    private let stopReader: StopReader
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
    let worker: Worker
    /// nil: nothing is kept.
    let keeper: Keeper?
    let agents: Agents
    let launches: Launches
    private let waits = Waits()
    /// The id of the bus that the daemon is on.
    let busID: String
    private let source: Configuration.Source
    let records: Records
    /// What the previous daemon held and could not be resumed yet.
    let thaws: Retry<String>
    private let handed: HandedOver
    private var isStepping = false
    private var timer: Timer?
    let time: TimeSensor?
    let triggers: TriggerSensor
    /// Restarts the daemon to get the kernel's events again.
    private var renewal: Timer?
    private let began = Daemon.now
    private var sleep: SleepSensor?
    private var sources: [Source] = []
    private var slots: [Slot] = []

    /// How long `Suspend` and `Resume` wait for a stop to be complete before they answer anyway.
    private static let longestWait: Microseconds = 500_000

    /// Creates all parts; nothing is on the bus yet.
    ///
    /// - Parameters:
    ///   - runtimeDirectory: where the daemon records the data that must survive when it is killed; nil:
    ///     nowhere.
    ///   - stateDirectory: where the daemon keeps the data that must survive a reboot; nil: nowhere.
    ///   - handed: the descriptors that were opened for the daemon with more privileges than its own.
    public init(
        loop: EventLoop, bus: Bus, configuration source: Configuration.Source,
        runtimeDirectory: String?, stateDirectory: String?,
        handed: HandedOver, journal: Journal
    ) throws {
        self.handed = handed
        self.loop = loop
        self.bus = bus
        self.journal = journal
        self.source = source
        let configuration = Configuration(reading: source)
        let core = Core(settings: configuration.settings)
        self.core = core
        state = RuntimeState(directory: runtimeDirectory, journal: journal)
        // This prevents an appstated --release that is run by hand from releasing the holds of this daemon, and waits
        // for one that is under way.
        _ = state?.lock(alone: false)
        let worker = try Worker(name: "appstated-work")
        self.worker = worker
        let connections = Connections(bus: bus, proc: proc, journal: journal, core: core)
        self.connections = connections
        agents = Agents(bus: bus, connections: connections, journal: journal)
        launches = Launches()
        triggers = TriggerSensor(bus: bus, journal: journal, report: core.report)
        thaws = try Retry(loop: loop, now: { Self.now })
        let hierarchy = UnifiedHierarchy.find()
        let table = ApplicationTable(proc: proc, hierarchy: hierarchy, core: core)
        self.table = table
        processes = try Processes(
            loop: loop, proc: proc, core: core, table: table, agents: agents, handed: handed)
        keeper = Keeper(
            files: KeptFiles(directories: stateDirectory), copies: KeptFiles(copiesIn: runtimeDirectory),
            boot: (try? proc.bootID()) ?? "", core: core, table: table, worker: worker, journal: journal)
        access = Access(bus: bus, connections: connections, proc: proc, core: core, table: table)
        busID = (try? bus.id()) ?? ""
        records = Records(state: state, bus: busID, core: core, table: table, now: { Self.now })
        stopReader = StopReader(loop: loop, proc: proc, hierarchy: hierarchy, core: core, table: table)
        sensor = try StopSensor(
            loop: loop, proc: proc, now: { Self.now }, core: core, handed: handed, reading: stopReader.read)
        logind = BusPeer(Logind.name, bus: bus, journal: journal)
        sessions = try SessionSensor(
            loop: loop, logind: logind, journal: journal, now: { Self.now }, core: core)
        inhibitors = Inhibitors(logind: logind, now: { Self.now })
        let objections = try ObjectionSensor(
            loop: loop, proc: proc, worker: worker, now: { Self.now }, core: core, table: table,
            stopReader: stopReader, handed: handed, inhibitors: inhibitors)
        self.objections = objections
        openInhibitors = OpenInhibitors(loop: loop) { core.report(.uninhibited($0, $1)) }
        freezer = try Freezer(
            loop: loop, proc: proc, journal: journal, now: { Self.now }, core: core, table: table,
            records: records, stopReader: stopReader, sensor: sensor, objections: objections,
            scopes: Scopes(agents: agents, proc: proc))
        delivery = Delivery(
            bus: bus, connections: connections, journal: journal,
            isReachable: { connection in
                guard let application = connection.application(in: core.machine).flatMap(core.application)
                else { return true }
                return !application.isStopped && !application.isPending
            })
        properties = Properties(
            core: core, table: table, proc: proc, access: access, sessions: sessions, sensor: sensor)
        announcer = Announcer(
            delivery: delivery, connections: connections, journal: journal, core: core, access: access,
            sessions: sessions, properties: properties)
        resources = Resources(
            proc: proc, journal: journal, core: core, applications: table, records: records)
        resources.configure(configuration.resources, configuration.settings.mode)
        lowMemory = LowMemoryMonitor(bus: bus, journal: journal)
        let memory = MemoryReader(proc: proc, table: table)
        let reclaimer = Reclaimer(
            loop: loop, proc: proc, worker: worker, journal: journal, announcer: announcer,
            now: { Self.now }, table: table, stopReader: stopReader, freezer: freezer,
            memory: memory, report: core.report)
        pressure = try PressureSensor(
            loop: loop, handed: handed, journal: journal, core: core, memory: memory, reclaimer: reclaimer)
        executor = Executor(
            core: core, table: table, records: records, keeper: keeper, proc: proc, processes: processes,
            sensor: sensor, freezer: freezer, inhibitors: openInhibitors, announcer: announcer,
            resources: resources, reclaimer: reclaimer, lowMemory: lowMemory, pressure: pressure,
            journal: journal)
        time = Self.timeSensor(loop, journal, core)
        timer = try loop.timer { core.report(.timePassed) }
        sources.append(try loop.watch(worker.descriptor) { [worker] _ in worker.complete() })
        complain(configuration)
    }

    /// Exports the objects on the bus, acquires the name, takes over the previous daemon's applications, and begins to watch
    /// all sources of events.
    public func start() throws(BusFailure) {
        slots.append(try bus.addFilter { [unowned self] in intercept($0) })
        slots.append(try bus.add(managerInterface(), at: BusNames.root))
        slots.append(try bus.add(reporterInterface(), at: BusNames.root))
        slots.append(try bus.addObjectManager(at: BusNames.root))
        slots.append(
            try bus.addFallback(applicationInterface(), under: BusNames.applications) {
                [unowned self] path throws(MethodError) in try find(path)
            })
        slots.append(
            try bus.addNodes(under: BusNames.applications) { [unowned self] in visiblePaths(below: $0) })
        try bus.onDisconnect { [unowned self] in lostBus() }
        for signal in [SIGTERM, SIGINT] {
            sources.append(try loop.onSignal(signal) { [unowned self] in stop(with: 0) })
        }
        sources.append(try loop.onSignal(SIGUSR1) { [unowned self] in restart() })
        sources.append(try loop.onSignal(SIGHUP) { [unowned self] in reload() })
        try bus.attach(to: loop)
        try acquireName()
        // The owner of the name also owns the files.
        let restored = if let state { try restore(from: state) } else { [ApplicationNumber]() }
        try loop.beginWatchdog()
        let failure = Service.notify("READY=1")
        guard failure == 0 else {
            // Otherwise the service manager would wait for the daemon forever.
            throw BusFailure(operation: "notify", subject: "the service manager", errno: failure)
        }
        // Calls and events wait until the loop runs.
        try watchLogind()
        keeper?.open()
        // The previous daemon may have ended while the machine slept.
        core.report(.sleepEnded)
        step()
        for session in core.machine.sessionsInUse { sessions.attend(to: session) }
        watchCPUs()
        // After the watch for CPUs, so that none is missed; before the look at what happened without a daemon.
        journal.attempt(.notice, "stops are found by polling") { try sensor.openTrace() }
        Service.notify("STATUS=Stops are found by \(sensor.detection.rawValue)")
        reread(restored)
        step()
        thawMarked()
        watchKills()
        pressure.start()
        configurePressure()
    }

    private func watchLogind() throws(BusFailure) {
        try logind.onSignal(Logind.rule("PrepareForSleep")) { [unowned self] in slept($0) }
        try logind.onSignal(Logind.rule("PrepareForShutdown")) { [unowned self] in
            if let begins = try? $0.readBool() { core.report(.shutdownPrepared(begins)) }
        }
        sleep = try SleepSensor(
            loop: loop, bus: bus, logind: logind, inhibitors: inhibitors, journal: journal,
            now: { Self.now }, core: core, application: { [unowned self] in application(of: $0) })
        try sessions.start()
        logind.onOwnerChange { [unowned self] in
            // The previous logind's announcement of a shutdown is no longer valid.
            if logind.owner != nil { core.report(.shutdownPrepared(false)) }
        }
        try logind.start()
    }

    /// A killed daemon keeps the name for as long as one of its threads waits in the kernel, for example for the FUSE
    /// server whose file it closes.
    private func acquireName() throws(BusFailure) {
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
            try processes.watchKills()
        }
    }

    private static func timeSensor(_ loop: EventLoop, _ journal: Journal, _ core: Core) -> TimeSensor? {
        var sensor: TimeSensor?
        journal.attempt(.warning, "changes of the system time are not detected") {
            sensor = try TimeSensor(
                loop: loop, journal: journal, report: { core.report(.timeChanged($0)) },
                alarmed: { core.report(.realTime($0)) })
        }
        return sensor
    }

    /// Perf events do not cover a CPU that comes online after they were opened.
    private func watchCPUs() {
        journal.attempt(.warning, "CPUs that come online are not detected") {
            renewal = try loop.timer { [unowned self] in renewEvents() }
            let cpus = try CPUWatch(handed: handed)
            sources.append(
                try loop.watch(cpus.descriptor) { [unowned self] _ in if cpus.consume() { cpusChanged() } })
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
        if begins { letDelayersRun() }
        sleep?.take(begins: begins)
        if begins { return }
        if sensor.isDeaf { renewEvents() }
        sensor.rescan()
    }

    /// The `last-demand` of an application that delays the machine's sleep.
    private static let sleepDemand = "sleep"

    /// The machine is about to sleep. An application that delays this until it is ready must run to become ready, or
    /// the machine waits for it in vain (InhibitDelayMaxSec= of logind.conf(5)).
    private func letDelayersRun() {
        inhibitors.readSleepDelays { [weak self] list in
            guard let self else { return }
            for number in list.compactMap(application) { core.report(.needed(number, Self.sleepDemand)) }
        }
    }

    /// The application that holds an inhibitor, which may outlive its process: the number may be another user's process by
    /// now.
    private func application(of inhibitor: Inhibitors.Inhibitor) -> ApplicationNumber? {
        let (pid, user) = (inhibitor.pid, inhibitor.user)
        guard table.all.contains(where: { $0.user == user }),
            let process = try? namedProcess(UInt32(bitPattern: pid)),
            (try? proc.status(pid).owner.isWholly(user)) == true,
            let number = core.machine.owner(of: process.lineage), core.application(number)?.user == user
        else { return nil }
        return number
    }

    /// The perf events do not cover some CPU: it was offline when they were opened, or has been offline
    /// since, for example while the machine slept. Only a restart hands over new descriptors. The daemon does
    /// not restart more often than the service manager permits, and until then finds stops by polling.
    private func renewEvents() {
        let before = sensor.detection
        defer {
            if sensor.detection != before {
                announcer.detectionChanged()
                Service.notify("STATUS=Stops are found by \(sensor.detection.rawValue)")
            }
        }
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
            return restart()
        }
        if sensor.detection == .events {
            journal.log(
                .notice, "the kernel's events are not received from every CPU: stops are found by polling")
            sensor.stopTracing()
        }
        if Service.isSupervised { renewal?.arm(at: earliest) }
    }

    /// Uses a fifth of the starts that the unit's limit allows (StartLimitIntervalSec=, StartLimitBurst=).
    private static let leastUptime: Microseconds = 150_000_000

    /// Reads the configuration again; no application is lost.
    func reload() {
        Service.notify(Service.reloading(at: Self.now))
        let configuration = Configuration(reading: source)
        let before = (core.machine.settings.mode, core.refusedLines)
        complain(configuration)
        core.report(.configured(configuration.settings))
        step()
        announcer.configurationChanged(
            (core.machine.settings.mode != before.0 ? [.mode] : [])
                + (core.refusedLines != before.1 ? [.refusedLines] : []))
        resources.configure(configuration.resources, configuration.settings.mode)
        configurePressure()
        Service.notify("READY=1")
    }

    private func configurePressure() {
        pressure.configure(core.machine.settings.pressure)
        lowMemory.configure(core.machine.settings.pressure.servesLowMemoryMonitor)
    }

    private func complain(_ configuration: Configuration) {
        core.refusedLines = configuration.complaints.count
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

    /// Serves until the daemon is to exit. Returns the exit status.
    public func run() throws(BusFailure) -> Int32 {
        try loop.run {
            while true {
                for number in stopReader.popChanged() { freezer.freezeChanged(number) }
                if core.facts.isEmpty { break }
                step()
            }
        }
    }

    func step() {
        precondition(!isStepping, "a step within a step")
        isStepping = true
        while !core.facts.isEmpty {
            let fact = core.facts.removeFirst()
            // The next daemon finds out itself which connections are gone.
            let isLazy = if case .disconnected = fact { true } else { false }
            executor.carryOut(core.machine.handle(fact, at: Self.now), isLazy: isLazy)
        }
        records.writeDue()
        executor.announceChanges()
        isStepping = false
        delivery.resyncReachable()
        endIfWorkerHangs()
        let launches = core.launches
        core.launches = []
        for case .relaunch(let application) in launches { relaunch(application) }
        for case .launch(let launch) in launches { launchDue(launch) }
        watchTriggers()
        waits.settle(at: Self.now)
        arm()
    }

    private func arm() {
        let deadlines = [core.machine.nextDeadline, waits.nextEnd, records.nextDue]
        if let next = deadlines.compactMap({ $0 }).min() {
            timer?.arm(at: next)
        } else {
            timer?.disarm()
        }
        pressure.arm()
    }

    // MARK: Waiting

    /// Calls `proceed` once `isOver` returns true, with false if it does not before `until`.
    func wait(
        until: Microseconds, for isOver: @escaping () -> Bool,
        then proceed: @escaping (_ isOver: Bool) -> Void
    ) {
        waits.add(until: until, for: isOver, then: proceed)
        waits.settle(at: Self.now)
        arm()
    }

    /// Answers the call once the ordered stop or continuation has been observed.
    ///
    /// - Parameter wantsHold: the call asked for a suspension: if that was impossible, it fails.
    func answer(
        _ call: PendingCall, whenAtRest number: ApplicationNumber, wantsHold: Bool,
        _ reply: @escaping (borrowing Message) throws -> Void = { _ in }
    ) {
        wait(until: Self.now + Self.longestWait) { [core] in
            core.application(number)?.isPending != true
        } then: { [core] _ in
            guard let application = core.application(number) else {
                return call.fail(MethodError(.noSuchApplication, "Application \(number) has ended"))
            }
            guard wantsHold, application.holds.isEmpty else { return call.reply(reply) }
            let why = application.objection ?? "it was resumed meanwhile"
            call.fail(MethodError(.notSuspendable(number, why)))
        }
    }

    // MARK: Objects

    private func find(_ path: String) throws(MethodError) -> Bool {
        if path == BusNames.applications { return false }
        let connection = try access.caller()
        // The usual case, for which no process is examined.
        if let number = BusNames.applicationNumber(inPath: path),
            let application = table[ApplicationNumber(number)],
            connection.mayManage(user: application.user)
        {
            return true
        }
        _ = try access.visibleApplication(at: path, to: connection)
        return true
    }

    private func visiblePaths(below path: String) -> [String] {
        // An application has no nodes below it.
        guard let connection = try? access.caller(), !path.hasPrefix(BusNames.applications + "/") else {
            return []
        }
        return access.possiblyVisible(to: connection)
            .filter { core.application($0).map { access.maySee($0, connection) } ?? false }
            .map { BusNames.path(ofApplication: $0.rawValue) }
    }
}

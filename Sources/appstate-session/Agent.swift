import AppStateBus
import AppStateContract
import Glibc
import Linux
import SessionRules
import Systemd
import Windows

/// Watches the session's windows and has them reported, for as long as the display server runs.
final class Agent {
    private let loop: EventLoop
    private let journal: Journal
    private let options: Arguments.Options
    /// Gets each line for `--verbose`.
    private let log: ((String) -> Void)?
    private var observer: (any WindowObserver)?
    private var source: Source?
    private var bus: Bus?
    /// Nothing is reported on purpose, because the observer receives no windows, or there are too many.
    private var isSilent = false
    private var hasTooMany = false
    /// The observer receives no windows at present, but may recover in a moment: the last report remains
    /// valid until then.
    private var interruption: Timer?
    private var interrupted: UInt64?
    private var reporter: Reporter?
    private var objections: Objections?
    /// The processes that must not be suspended.
    private var objecting: [ObjectionReason: Set<ProcessIdentity>] = [:]
    private let proc = Proc()
    private var sessionNames: SessionNames?
    private var calls: CallWatch?
    /// A monitor of the session bus sees calls to suspended applications.
    private var seesCalls = true
    private var starts: StartWatch?
    private var connections: ConnectionWatch?
    private var sessionEnd: SessionEndWatch?
    private var commands: SuspendCommands?
    private var demands: Demands?
    /// The demands that were not reported to the last daemon.
    private var unmet: [Int32: Demands.Demand] = [:]
    /// The main processes of applications that are suspended, or about to be, and of all applications.
    private var resting: Set<Int32> = []
    private var registered: Set<Int32> = []
    /// The suspended applications, the latest at the end.
    private var suspended: [Int32] = []
    /// Of PulseAudio, which pipewire-pulse implements, and of PipeWire itself.
    private var playback: [Playback] = []
    private var players: [Set<Int32>] = [[], []]
    private var inhibitors: SessionInhibitors?
    private var selections: Selections?
    private var front = Front()
    private var requests: RequestWatch?
    private var registry: Registry?
    private var rules: RuleKeeper?
    /// nil: no rule needs it.
    private var power: PowerSource?
    /// The registered applications, as far as they are known.
    private var entries: [Int32: Registry.Entry] = [:]
    private let adoption: Adoption
    private var launching: Launching?
    private var launches: LaunchService?
    private var configuration: Configuration
    private var configurationWatch: ConfigurationWatch?
    private var reconnection: Retry?
    private var isLost = false
    private var signals: [Source] = []
    private var lastLook: UInt64 = 0

    /// If a display server answers and ends again and again within this time, the agent gives up;
    /// microseconds.
    private static let looksApart: UInt64 = 10_000_000
    /// How long an observer may be interrupted, microseconds.
    private static let longestInterruption: UInt64 = 1_000_000

    init(loop: EventLoop, options: Arguments.Options, journal: Journal) {
        self.loop = loop
        self.options = options
        self.journal = journal
        log = options.isVerbose ? { say($0) } : nil
        configuration = Configuration(reading: options.configuration)
        adoption = Adoption(configuration: configuration, journal: journal, log: log)
    }

    /// Finds the display server and the bus, and starts.
    func start() throws {
        signals = try [SIGTERM, SIGINT].map { signal in
            try loop.onSignal(signal) { [unowned self] in end("asked to end") }
        }
        signals.append(try loop.onSignal(SIGHUP) { [unowned self] in reload() })
        complain()
        watchConfiguration()
        reconnection = try Retry(loop) { [unowned self] in reconnect() }
        interruption = try loop.timer { [unowned self] in
            settleConnection()
            report()
        }
        commands = try SuspendCommands(loop: loop, journal: journal) { [unowned self] in tell(.command, $0) }
        launching = try Launching(
            loop: loop, journal: journal,
            raise: { [unowned self] window, token throws(ObserverFailure) in try raise(window, token) },
            minimize: { [unowned self] in minimize(windows(of: $0).filter { !$0.minimized }) })
        if !options.launchesOnly { try watch(DisplayServer.observer()) }
        countWindows()
        isSilent = isBlind
        try connect()
        if !options.launchesOnly { watchProcesses() }
        Service.notify("READY=1\nSTATUS=\(options.launchesOnly ? "Launching only" : "Watching \(subject)")")
    }

    /// The watches that report which suspended applications are needed, and which must not be suspended.
    private func watchProcesses() {
        watchCalls()
        watchStarts()
        watchConnections()
        watchSessionEnd()
        watchPlayback()
        watchInhibitors()
    }

    // MARK: The display server

    private var subject: String { observer?.subject ?? "nothing" }

    private func watch(_ found: any WindowObserver) throws {
        observer = found
        found.learn(names: entries.mapValues(\.name))
        found.onStall { [unowned self] in unstall($0) }
        source = try loop.watch(found.descriptor) { [unowned self] _ in dispatch() }
        watchDisplay()
        journal.log(.info, "watching \(subject)")
    }

    /// The watches for copied data, and those that need an X server.
    private func watchDisplay() {
        guard let system = observer?.system else { return }
        do {
            selections = try Selections(loop: loop, journal: journal) {
                [unowned self] isAgain throws(ObserverFailure) in
                try DisplayServer.selections(of: system, isAgain: isAgain) { [unowned self] in
                    front.processes(at: loop.now)
                }
            } stall: { [unowned self] in
                unstall($0)
            } tell: { [unowned self] in
                tell($0, among: $1)
            }
        } catch {
            journal.log(.notice, "\(error)")
        }
        guard [.x11, .i3].contains(system) else { return }
        do {
            requests = try RequestWatch(loop: loop) { [unowned self] in demands?.report($0, $1, by: 0) }
            requests?.onStall { [unowned self] in unstall($0) }
            requests?.watch(resting)
        } catch {
            journal.log(.notice, "\(error)")
        }
    }

    private func leaveDisplay() {
        (selections, requests) = (nil, nil)
        tell(.clipboard, [])
        tell(.selection, [])
    }

    /// A call to a suspended application makes it run. While calls are not detected, owners of services on
    /// the bus are not suspended.
    private func watchCalls() {
        guard let address = DisplayServer.sessionBus else { return }
        do {
            calls = try CallWatch(address: address, loop: loop, journal: journal) { [unowned self] isSeen in
                sessionNames = nil
                seesCalls = isSeen
                connections?.inspectsSessionBus = !isSeen
                if isSeen { tell(.busName, []) } else { watchSessionNames(at: address) }
            } needed: { [unowned self] pid, reason, caller in
                if reason == .call, rules?.ignores(caller, calling: pid) == true { return }
                demands?.report(pid, reason, by: caller)
            }
            calls?.watch(resting, suspended: Set(suspended), among: registered)
        } catch {
            journal.log(.notice, "calls on the session bus are not watched: \(error)")
        }
    }

    private func watchStarts() {
        do {
            starts = try StartWatch(loop: loop, journal: journal) { [unowned self] pid, other in
                demands?.report(pid, .start, by: other)
            }
            starts?.watch(resting)
        } catch {
            journal.log(.notice, "starts of suspended applications are not watched: \(error)")
        }
    }

    private func watchConnections() {
        do {
            connections = try ConnectionWatch(
                loop: loop, journal: journal,
                sessionBus: DisplayServer.sessionBus.flatMap(DisplayServer.socket(ofBus:))
            ) { [unowned self] pid, reason in
                demands?.report(pid, reason, by: 0)
            } full: { [unowned self] in
                hide($0)
            }
            connections?.inspectsSessionBus = !seesCalls
            connections?.watch(Set(suspended), among: registered)
        } catch {
            journal.log(.notice, "connections to suspended applications are not watched: \(error)")
        }
    }

    private func watchSessionEnd() {
        guard let address = DisplayServer.sessionBus else { return }
        do throws(BusFailure) {
            sessionEnd = try SessionEndWatch(address: address, loop: loop, journal: journal) {
                [unowned self] in
                for pid in resting { demands?.report(pid, .sessionEnd, by: 0) }
            }
        } catch {
            journal.log(.notice, "the end of the session is not seen: \(error)")
        }
    }

    private func watchSessionNames(at address: String) {
        do throws(BusFailure) {
            sessionNames = try SessionNames(address: address, loop: loop, journal: journal) {
                [unowned self] in tell(.busName, $0)
            }
        } catch {
            journal.log(.notice, "names on the session bus are not watched: \(error)")
        }
    }

    private func watchPlayback() {
        let paths = [PlaybackObserver.defaultPath, PipeWireObserver.defaultPath]
        for (index, path) in paths.enumerated() {
            guard let path else { continue }
            do {
                let watch = try Playback(path: path, loop: loop, journal: journal) {
                    path throws(ObserverFailure) in
                    if index == 0 {
                        try PlaybackObserver(path: path)
                    } else {
                        try PipeWireObserver(path: path)
                    }
                } tell: { [unowned self] in
                    players[index] = $0
                    tell(.audio, players[0].union(players[1]))
                }
                playback.append(watch)
            } catch {
                journal.log(.notice, "audio playback is not watched: \(error)")
            }
        }
    }

    private func watchInhibitors() {
        guard let address = DisplayServer.sessionBus else { return }
        do {
            inhibitors = try SessionInhibitors(address: address, loop: loop, journal: journal) {
                [unowned self] in tell(.inhibitor, $0)
            }
        } catch {
            journal.log(.notice, "inhibitors on the session bus are not watched: \(error)")
        }
    }

    private func dispatch() {
        let before = (observer?.windows, observer?.desktopProcesses)
        do throws(ObserverFailure) {
            try observer?.dispatch()
            settleConnection()
            // On X11, much that wakes us changes nothing: a window moves, a menu opens.
            if observer?.system == .x11, before == (observer?.windows, observer?.desktopProcesses) { return }
            report()
        } catch {
            journal.log(.notice, error.description)
            lookAgain()
        }
    }

    /// The server may have disconnected us, or have been restarted.
    private func lookAgain() {
        source?.cancel()
        source = nil
        observer = nil
        leaveDisplay()
        do {
            guard loop.now - lastLook > Self.looksApart else {
                // The server runs, and has disconnected us. Its windows still exist, and the next agent
                // starts again.
                return end("the display server has ended the connection twice", code: 1)
            }
            lastLook = loop.now
            try watch(DisplayServer.observer())
            reporter?.beginAnew()
            settleConnection()
            report()
        } catch ObserverFailure.unsupported(let why) {
            // A display server answers, so its windows still exist. It may have been restarted, and not be on the
            // session bus yet: the next agent tries again.
            end("the windows can no longer be watched: \(why)", code: 1)
        } catch  where DisplayServer.mayReturn {
            end("the windows can no longer be watched: \(error)", code: 1)
        } catch {
            report()
            end("nothing left to watch: \(error)")
        }
    }

    private func report() {
        if interrupted == nil { for notice in observer?.takeNotices() ?? [] { journal.log(.notice, notice) } }
        let focused = observer?.windows.filter(\.focused).compactMap(\.process) ?? []
        front.note(Set(focused), at: loop.now)
        guard !isSilent else { return }
        noteUnwatched()
        let windows = observer.map { observer in
            observer.windows.compactMap { Report.Window($0, of: observer.system) }
        }
        reporter?.report(windows ?? [])
        launching?.look(at: windows ?? [])
        adoption.look(at: windows ?? [], on: observer?.desktopProcesses ?? [])
        // Rules that apply only on battery power are not lifted before it is known whether the machine runs
        // on battery.
        if registry?.isKnown == true, power == nil || power?.isBattery != nil {
            rules?.apply(
                configuration, to: entries, with: windows ?? [], onBattery: power?.isBattery ?? false)
            commands?.apply(rules?.commands ?? [:])
        }
    }

    /// Finds the applications whose processes do not let the agent inspect them. What needs an application mostly
    /// arrives through its descriptors, so such an application would not be resumed when it is needed. Where users may
    /// inspect no process, this is no reason: all applications are alike.
    private func noteUnwatched() {
        let owners = observer?.windows.filter { !$0.isShared }.compactMap(\.process) ?? []
        let refusing = registered.union(owners).filter(proc.refusesInspection)
        tell(.unwatched, refusing.isEmpty || !proc.usersMayInspect ? [] : refusing)
    }

    /// The windows of an application. Applications that were started from it have windows of their own.
    private func windows(of pid: Int32) -> [ObservedWindow] {
        (observer?.windows ?? []).filter { window in
            !window.isShared
                && window.process.flatMap { proc.application(of: $0, among: registered) } == pid
        }
    }

    private func minimize(_ windows: [ObservedWindow]) {
        do throws(ObserverFailure) {
            try observer?.minimize(windows.map(\.number))
        } catch {
            journal.log(.notice, "\(error)")
        }
    }

    /// Minimizes the windows of an application that stays suspended, because a window that is not visible
    /// gets no pointer motion events.
    private func hide(_ pid: Int32) {
        let windows = windows(of: pid).filter(\.visible)
        guard !windows.isEmpty else { return }
        journal.log(
            .notice,
            "the windows of process \(pid) are minimized: it is suspended and reads nothing, and the compositor would "
                + "end its connection")
        minimize(windows)
    }

    private func raise(_ window: UInt64, _ token: String?) throws(ObserverFailure) {
        guard let observer, let own = observer.system.window(numbered: window) else {
            throw .unreachable("there is no display server")
        }
        try observer.activate([own], token: token)
    }

    private func tell(_ reason: ObjectionReason, _ processes: Set<Int32>) {
        tell(reason, among: Set(processes.compactMap { try? proc.identity(of: $0) }))
    }

    private func tell(_ reason: ObjectionReason, among processes: Set<ProcessIdentity>) {
        guard objecting[reason] ?? [] != processes else { return }
        objecting[reason] = processes
        reportObjections()
    }

    /// There is no objection to a process that has ended, even if another process has its number by now.
    private func reportObjections() {
        var representatives = Representatives(proc, registered: registered)
        objections?.report(
            objecting.mapValues { processes in
                let alive = processes.filter { (try? proc.identity(of: $0.pid)) == $0 }
                return alive.reduce(into: Set<Int32>()) { $0.formUnion(representatives.of($1.pid)) }
            })
    }

    private func learn(_ entries: [Int32: Registry.Entry]) {
        self.entries = entries
        registered = Set(entries.keys)
        observer?.learn(names: entries.mapValues(\.name))
        let isKnown = registry?.isKnown == true
        adoption.learn(isKnown ? entries : nil)
        watchConnections(of: isKnown ? Set(suspended) : [])
        reportObjections()
        report()
    }

    private func follow(_ suspended: Set<Int32>, _ waiting: Set<Int32>) {
        resting = suspended.union(waiting)
        calls?.watch(resting, suspended: suspended, among: registered)
        starts?.watch(resting)
        requests?.watch(resting)
        let new = suspended.subtracting(self.suspended)
        self.suspended = self.suspended.filter(suspended.contains) + new.sorted()
        if !new.isEmpty { requests?.noteSuspension() }
        watchConnections(of: suspended)
    }

    /// Without a daemon or a bus, nothing reports that an application runs again or has ended. Our copies
    /// must not keep its connections open.
    private func watchConnections(of suspended: Set<Int32>) {
        connections?.watch(isLost ? [] : suspended, among: registered)
    }

    /// One of the suspended applications may have grabbed the X server, most likely the last. They are
    /// resumed one after the other until the server answers.
    private func unstall(_ times: Int) {
        guard !suspended.isEmpty else { return }
        let pid = suspended[suspended.count - 1 - (times - 1) % suspended.count]
        demands?.urge(pid, .grab)
    }

    // MARK: The bus

    private func connect() throws(BusFailure) {
        let bus = try Bus.system()
        try bus.attach(to: loop)
        try bus.onDisconnect { [unowned self] in lose("the connection to the system bus is lost") }
        let deaf: (MethodError) -> Void = { [unowned self] in
            lose("the system bus does not report changes: \($0)")
        }
        if let launching {
            launches = try LaunchService(
                bus: bus, loop: loop, deaf: deaf, session: options.session, journal: journal,
                launching: launching, presents: !options.launchesOnly)
        }
        if !isSilent { try beginReports(over: bus, deaf) }
        self.bus = bus
        watchPower()
        report()
    }

    private func beginReports(over bus: Bus, _ deaf: @escaping (MethodError) -> Void) throws(BusFailure) {
        // This comes before the windows, after which the daemon begins to suspend again.
        objections = try Objections(bus: bus, loop: loop, deaf: deaf, journal: journal, log: log)
        reportObjections()
        reporter = try Reporter(
            bus: bus, loop: loop, deaf: deaf, session: options.session, journal: journal,
            log: log.map { log in { log("\($0)") } })
        registry = try Registry(
            bus: bus, loop: loop, deaf: deaf, journal: journal, tell: { [unowned self] in learn($0) },
            unregistered: { [unowned self] pid in
                adoption.leave(pid)
                commands?.release(pid)
            },
            resting: { [unowned self] in follow($0, $1) },
            states: { [unowned self] in commands?.learn($0) },
            restsInSight: { [unowned self] in rules?.restingInSight.contains($0) == true })
        rules = try RuleKeeper(
            bus: bus, loop: loop, deaf: deaf, journal: journal, log: log,
            configured: { [unowned self] in registry?.ruled($0) })
        demands = try Demands(bus: bus, loop: loop, deaf: deaf, due: unmet, journal: journal, log: log)
        unmet = [:]
        adoption.use(bus)
    }

    private func watchPower() {
        guard let bus, configuration.rules.contains(where: { $0.onBattery != nil }) else {
            power = nil
            return
        }
        if power != nil { return }
        do throws(BusFailure) {
            power = try PowerSource(bus: bus, journal: journal) { [unowned self] in report() }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func lose(_ why: String) {
        // All pending calls fail with the connection.
        guard !isLost else { return journal.log(.debug, why) }
        isLost = true
        journal.log(.warning, why)
        watchConnections(of: [])
        // This must not be done from within its own handler.
        reconnection?.schedule()
    }

    /// Without information about windows, the agent must not be a reporter: while there is none, policy
    /// suspends nothing in this session. Closing the connection ends its role as a reporter. If there are
    /// more windows than are watched, one of the others may have the focus. A silent agent waits until there are
    /// clearly fewer, because a window that comes and goes must not make it reconnect each time.
    private var isBlind: Bool { options.launchesOnly || observer?.isBlind == true || hasTooMany }

    private func countWindows() {
        let most = ObservedWindow.mostWindows
        hasTooMany = (observer?.windows.count ?? 0) >= (hasTooMany ? most - most / 8 : most)
    }

    private func settleConnection() {
        countWindows()
        guard isBlind != isSilent else {
            interrupted = nil
            return
        }
        if isBlind, observer?.isInterrupted == true {
            let since = interrupted ?? loop.now
            interrupted = since
            guard loop.now >= since + Self.longestInterruption else {
                interruption?.arm(at: since + Self.longestInterruption)
                return
            }
        }
        interrupted = nil
        isSilent = isBlind
        reconnect()
    }

    private func disconnect() {
        reporter = nil
        objections = nil
        registry = nil
        if let demands { unmet = demands.due }
        demands = nil
        rules = nil
        power = nil
        follow([], [])
        adoption.use(nil)
        launches = nil
        bus = nil
    }

    private func reconnect() {
        // An observer that has recovered does not wait for this.
        reconnection?.cancel()
        disconnect()
        do throws(BusFailure) {
            reconnection?.hasSucceeded()
            isLost = false
            try connect()
        } catch {
            reconnection?.schedule()
        }
    }

    // MARK: Configuration

    private func watchConfiguration() {
        do {
            configurationWatch = try ConfigurationWatch(options.configuration, loop: loop) { [unowned self] in
                configure()
            }
        } catch {
            journal.log(.notice, "changes of the configuration are not seen: \(error)")
        }
    }

    private func reload() {
        Service.notify(Service.reloading(at: loop.now))
        configure()
        Service.notify("READY=1")
    }

    private func configure() {
        configuration = Configuration(reading: options.configuration)
        complain()
        adoption.configure(configuration)
        watchPower()
        report()
    }

    private func complain() {
        for complaint in configuration.complaints { journal.log(.warning, "\(complaint)") }
    }

    // MARK: The end

    private func end(_ why: String, code: Int32 = 0) {
        Service.notify("STOPPING=1")
        journal.log(.notice, why)
        reporter?.finish()
        loop.exit(code: code)
    }
}

/// Writes a line to standard output at once.
private func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    bytes.withUnsafeBytes { _ = write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

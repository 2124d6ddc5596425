import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import SessionRules
import Systemd
import Usage
import Windows

/// The session agent: it tells the daemon the windows, the objections and the rules of this session, and serves its
/// launches, for as long as the display server runs.
final class Agent {
    private let loop: EventLoop
    private let journal: Journal
    private let options: Arguments.Options
    private let daemon: DaemonConnection
    private let display: Display
    private let objections: Objections
    private let entries: DesktopEntries
    private let adoption: Adoption
    private let commands: SuspendCommands
    private let launches: LaunchService
    private let leaving: Leaving
    private let session: SessionBus
    private let notifier: Notifier
    private let notices: EndNotices
    private var portal: BackgroundPortal?
    private let proc = Proc()
    private var configuration: Configuration
    private var rules = Rules()
    private var situation = Situation()
    /// What is watched as long as the agent runs, and what is watched on the present display server.
    private let watchers: Watchers
    private let displayWatchers: Watchers
    /// nil: no rule asks for it, or there is no connection to the system bus.
    private var power: PropertyWatch?
    /// nil: the configuration does not ask for it.
    private var usage: UsageRecorder?
    private var sources: [Any] = []

    init(loop: EventLoop, options: Arguments.Options, journal: Journal) throws {
        self.loop = loop
        self.options = options
        self.journal = journal
        let log: ((String) -> Void)? = options.isVerbose ? { say($0) } : nil
        let daemon = try DaemonConnection(
            loop: loop, session: options.session,
            registrations: options.launchesOnly
                ? [.registerLauncher] : [.registerLauncher, .registerPresenter],
            journal: journal, log: log)
        let session = SessionBus(address: SessionBus.ownAddress, loop: loop, journal: journal)
        let entries = DesktopEntries { journal.log(.warning, $0) }
        let display = try Display(loop: loop, journal: journal, session: session, entries: entries)
        let objections = Objections(daemon: daemon)
        configuration = Configuration(reading: options.configuration)
        adoption = Adoption(configuration: configuration, entries: entries, journal: journal, log: log)
        commands = try SuspendCommands(loop: loop, journal: journal) { objections.set(.command, $0) }
        self.session = session
        let leaving = try Leaving(loop: loop, display: display, daemon: daemon)
        self.leaving = leaving
        launches = try LaunchService(
            loop: loop, journal: journal, daemon: daemon, session: session,
            raise: { window, token throws(ObserverFailure) in try display.raise(window, token) },
            leave: leaving.leave)
        notifier = try Notifier(session: session, journal: journal)
        notices = try EndNotices(
            loop: loop, journal: journal, notifier: notifier, entries: entries,
            session: options.session ?? Login.session(ofProcess: getpid())
                ?? Login.displaySession(ofUser: getuid()))
        notices.configure(isWanted: configuration.notifies)
        (watchers, displayWatchers) = (Watchers(journal: journal), Watchers(journal: journal))
        (self.daemon, self.display, self.objections, self.entries) = (daemon, display, objections, entries)
        (daemon.agent, display.agent) = (self, self)
    }

    /// Finds the display server and the bus, and starts.
    func start() throws {
        sources = try [SIGTERM, SIGINT].map { signal in
            try loop.onSignal(signal) { [unowned self] in end("asked to end", code: 0) }
        }
        sources.append(try loop.onSignal(SIGHUP) { [unowned self] in reload() })
        complain()
        watchConfiguration()
        recordUsage()
        if !options.launchesOnly { try display.start() }
        try daemon.connect()
        if !options.launchesOnly { startWatchers() }
        let missing = watchers.missing + displayWatchers.missing
        let watched =
            "Watching \(display.subject)"
            + (missing.isEmpty ? "" : "; not watched: \(missing.joined(separator: ", "))")
        Service.notify("READY=1\nSTATUS=\(options.launchesOnly ? "Launching only" : watched)")
    }

    // MARK: What is watched

    /// A new watcher is one more `start`: it conforms to `Watcher`, is made with what it tells, and is released to stop it.
    private func startWatchers() {
        let (daemon, objections) = (daemon, objections)
        if let path = PlaybackObserver.defaultPath {
            watchers.start("audio of PulseAudio", in: situation) {
                try Playback(path: path, loop: loop, journal: journal) { path throws(ObserverFailure) in
                    try PlaybackObserver(path: path)
                } tell: {
                    objections.set(.audio, $0, by: "PulseAudio")
                }
            }
        }
        if let path = PipeWireObserver.defaultPath {
            watchers.start("audio of PipeWire", in: situation) {
                try Playback(path: path, loop: loop, journal: journal) { path throws(ObserverFailure) in
                    try PipeWireObserver(path: path)
                } tell: {
                    objections.set(.audio, $0, by: "PipeWire")
                }
            }
        }
        watchers.start("starts of suspended applications", in: situation) {
            try StartWatch(loop: loop) { daemon.need($0, .start, by: $1) }
        }
        let bus = SessionBus.ownAddress
        watchers.start("connections to suspended applications", in: situation) {
            try ConnectionWatch(
                loop: loop, journal: journal, sessionBus: bus.flatMap(SessionBus.socket(of:))
            ) {
                daemon.need($0, $1, by: 0)
            } full: { [unowned self] in
                hide(
                    $0,
                    because: "it is suspended and reads nothing, and the compositor would end its connection")
            }
        }
        if bus != nil { startBusWatchers() }
    }

    /// These share the connection to the session bus, and one monitor of it.
    private func startBusWatchers() {
        let (daemon, objections, session, entries) = (daemon, objections, session, entries)
        guard let monitor = try? SessionMonitor(session: session, loop: loop, journal: journal) else {
            return
        }
        watchers.start("calls on the session bus", in: situation) {
            try CallWatch(session: session, monitor: monitor, loop: loop, journal: journal, entries: entries)
            {
                [unowned self] isSeen in
                situation.seesCalls = isSeen
                watchers.follow(situation)
            } needed: { [unowned self] pid, reason, caller in
                if reason == .call, rules.ignores(caller, calling: pid) { return }
                daemon.need(pid, reason, by: caller)
            }
        }
        watchers.start("inhibitors on the session bus", in: situation) {
            try SessionInhibitors(session: session, monitor: monitor, loop: loop, journal: journal) {
                objections.set(.inhibitor, $0)
            }
        }
        watchers.start("permissions of Flatpaks", in: situation) {
            try BackgroundPermissions(session: session, journal: journal) {
                objections.set(.background, $0)
            }
        }
        do throws(BusFailure) {
            portal = try BackgroundPortal(session: session, journal: journal, notifier: notifier) {
                [unowned self] in appStates
            }
        } catch {
            journal.log(.notice, "the background portal is not served: \(error)")
        }
    }

    /// The states of the applications that have windows, and of those that are registered, as the portal counts them;
    /// nil: no windows are seen.
    private var appStates: [String: BackgroundPortal.AppState]? {
        guard display.windows != nil else { return nil }
        let applications = daemon.applications
        var states: [String: BackgroundPortal.AppState] = [:]
        for entry in applications.entries.values { states[entry.name] = .background }
        for window in display.observed where !window.isShared {
            let main = window.process.flatMap { proc.application(of: $0, among: applications.registered) }
            let name = main.flatMap { applications.entries[$0]?.name }
            let id = name ?? window.process.flatMap(proc.flatpak) ?? window.appID
            if window.focused { states[id] = .active } else if states[id] != .active { states[id] = .running }
        }
        return states
    }

    /// Finds the applications whose processes do not let the agent inspect them. What needs an application mostly
    /// arrives through its descriptors, so such an application would not be resumed when it is needed. Where users may
    /// inspect no process, this is no reason: all applications are alike.
    private func noteUnwatched() {
        let refusing = daemon.applications.registered.union(display.owners).filter(proc.refusesInspection)
        objections.set(.unwatched, refusing.isEmpty || !proc.usersMayInspect ? [] : refusing)
    }

    /// Minimizes the windows of an application that stays suspended, because a window that is not visible
    /// gets no pointer motion events.
    private func hide(_ pid: Int32, because why: String) {
        let windows = display.windows(of: pid, among: daemon.applications.registered).filter(\.visible)
        guard !windows.isEmpty else { return }
        journal.log(.notice, "the windows of process \(pid) are minimized: \(why)")
        display.minimize(windows)
    }

    // MARK: Configuration

    private func watchConfiguration() {
        do {
            let watch = try ConfigurationWatch(options.configuration, loop: loop) { [unowned self] in
                configure()
            }
            sources.append(watch)
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
        notices.configure(isWanted: configuration.notifies)
        watchPower()
        recordUsage()
        windowsChanged()
    }

    private func recordUsage() {
        guard configuration.usage, !options.launchesOnly, let path = UsageLog.path else {
            usage = nil
            return
        }
        if usage != nil { return }
        do {
            usage = try UsageRecorder(path: path, loop: loop, journal: journal)
            usage?.follow(daemon.applications)
        } catch {
            journal.log(.warning, "usage is not recorded: \(error)")
        }
    }

    private func complain() {
        for complaint in configuration.complaints { journal.log(.warning, "\(complaint)") }
    }

    private func watchPower() {
        guard let bus = daemon.bus, configuration.rules.contains(where: { $0.onBattery != nil }) else {
            power = nil
            return
        }
        if power != nil { return }
        let name = "org.freedesktop.UPower"
        do throws(BusFailure) {
            power = try PropertyWatch(
                "OnBattery", of: name, at: "/org/freedesktop/UPower", service: name, bus: bus,
                failed: { [journal] in journal.log(.notice, "the bus does not report on \(name): \($0)") },
                changed: { [unowned self] in
                    journal.log(.info, "the machine runs on \(isOnBattery ? "battery" : "mains")")
                    applyRules()
                })
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    /// Without UPower it does not.
    private var isOnBattery: Bool { power?.value == .bool(true) }

    private func applyRules() {
        // Rules that apply only on battery power are not lifted before it is known whether the machine runs on battery.
        guard let windows = display.windows, daemon.applications.isKnown,
            power?.isKnown != false
        else { return }
        rules.apply(
            configuration, to: daemon.applications.entries, with: windows,
            onBattery: isOnBattery)
        daemon.rules = rules.wanted
        daemon.applications.restingVisible = Set(
            rules.wanted.filter { $0.value?.rule.suspendWhen == .inactive }.keys)
        commands.apply(rules.commands)
        daemon.reconcile()
    }
}

// MARK: The display server

extension Agent {
    /// A display server is watched.
    func displayFound(_ system: WindowSystem) {
        let objections = objections
        displayWatchers.start("copied data", in: situation) {
            try Selections(loop: loop, journal: journal) { [display] isAgain throws(ObserverFailure) in
                try DisplayServer.selections(of: system, isAgain: isAgain) { display.frontProcesses }
            } stall: { [unowned self] in
                displayStalled($0)
            } tell: {
                objections.set($0, $1)
            }
        }
        guard [.x11, .i3].contains(system) else { return }
        displayWatchers.start("requests to the window manager", in: situation) {
            let requests = try RequestWatch(loop: loop) { [daemon] in daemon.need($0, $1, by: 0) }
            requests.onStall { [unowned self] in displayStalled($0) }
            return requests
        }
    }

    /// It is not watched any more.
    func displayLost() {
        displayWatchers.stop()
        for reason in [ObjectionReason.clipboard, .selection] { objections.set(reason, []) }
    }

    func windowsChanged() {
        if display.windows != nil { noteUnwatched() }
        daemon.windows = display.windows
        daemon.reconcile()
        guard let windows = display.windows else { return }
        launches.look(at: windows)
        portal?.update()
        adoption.look(at: windows, on: display.desktopProcesses)
        applyRules()
    }

    /// An X server has not answered for 100 ms, or for another 100 ms. One of the suspended applications may have grabbed
    /// it, most likely the last. They are
    /// resumed one after the other until the server answers.
    func displayStalled(_ times: Int) {
        let suspended = daemon.applications.suspended
        guard !suspended.isEmpty else { return }
        daemon.urge(suspended[suspended.count - 1 - (times - 1) % suspended.count], .grab)
    }

    func end(_ why: String, code: Int32) {
        Service.notify("STOPPING=1")
        journal.log(.notice, why)
        daemon.finish()
        display.stop()
        // It writes what it has.
        usage = nil
        loop.exit(code: code)
    }
}

// MARK: The daemon

extension Agent {
    /// There is a connection to the system bus.
    func connected(over bus: Bus) throws(BusFailure) {
        try launches.start(on: bus)
        adoption.use(bus)
        try notices.start(on: bus, deaf: { [daemon] in daemon.deaf($0) })
        watchPower()
    }

    /// The connection to the system bus is gone, or another takes its place.
    func disconnected() {
        launches.stop()
        power = nil
        notices.stop()
        adoption.use(nil)
    }

    /// Another daemon has taken the place of the one that we knew.
    func daemonChanged() { launches.cancelAll() }

    func applicationsChanged(from former: Applications) {
        let applications = daemon.applications
        situation.applications = applications
        // What asks the X server comes first: copies of an application's descriptors would keep its grab of the server.
        displayWatchers.follow(situation)
        leaving.follow(Set(applications.suspended))
        for pid in Set(applications.suspended).subtracting(former.suspended) where leaving.isGrabbing(pid) {
            hide(pid, because: "it is suspended and has grabbed the pointer or the keyboard")
        }
        watchers.follow(situation)
        commands.learn(applications)
        usage?.follow(applications)
        guard applications.entries != former.entries || applications.isKnown != former.isKnown else { return }
        display.learn(names: applications.entries.mapValues(\.name))
        adoption.learn(applications.isKnown ? applications.entries : nil)
        noteUnwatched()
        objections.report()
        applyRules()
    }

    /// - Parameter bytes: what the end has freed, because memory was short; nil: the application did not respond.
    func ended(_ id: String, _ path: String, _ bytes: UInt64?, _ details: [(key: String, value: Variant)]) {
        if let bytes { usage?.note(reclaimed: bytes, of: path) }
        notices.note(id, bytes, details)
    }

    /// An application is no longer registered, and its process may keep running.
    func unregistered(_ pid: Int32) {
        adoption.leave(pid)
        commands.release(pid)
    }
}

/// Writes a line to standard output at once.
private func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    bytes.withUnsafeBytes { _ = write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

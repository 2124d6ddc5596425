import AppStateBus
import AppStateContract
import Desktop
import Linux
import Systemd

/// Reports calls on the session bus to applications that are suspended, or about to be.
///
/// The bus shows such calls to a connection that has become a monitor (D-Bus specification, "BecomeMonitor"), with rules
/// that let nothing else through. The monitor exists before an application is suspended, and stays when the application
/// runs again because it is needed, so that a call that was not answered in time is detected, too.
///
/// dbus-broker accepts rules with a destination, but still sends a monitor all calls.
final class CallWatch: Watcher, SessionListener {
    private let monitor: SessionMonitor
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ reason: DemandReason, _ caller: Int32) -> Void
    private let proc = Proc()
    private let classifier: SessionName
    private let isSeen: (Bool) -> Void
    private var isSettled = false
    private var isRefused = false
    /// For queries. Nil: there is no session bus.
    private var bus: Bus?
    /// The processes of names; 0: a name has none. Unique names are never reused, and a change of the owner of another
    /// name is announced.
    private var processes: [String: Int32] = [:]
    private var questions: [String: Slot] = [:]
    private var listing: Slot?
    /// Queries for the owner of a name in a call, and the handlers that wait for the answer.
    private var names: [String: Slot] = [:]
    private var waiting: [String: [(Int32?) -> Void]] = [:]
    private var resting: Set<Int32> = []
    private var registered: Set<Int32> = []
    private var suspended: Set<Int32> = []
    /// The application's process, by its connections: those that a monitor watches, those that the next one is to
    /// watch, and those that are wanted.
    private var targets: [String: Int32] = [:]
    private var next: [String: Int32]?
    private var wanted: [String: Int32] = [:]
    /// The set of applications to watch has changed since the bus was asked for its connections.
    private var isStale = false
    /// For the names of services that have got an owner.
    private var announcements: [Slot] = []
    /// When suspended applications were last resumed for such a name, and the owner of the next one.
    private var announced: UInt64 = 0
    private var announcer: String?
    private var announcing: Timer?

    /// A bus limits the pending replies of a connection; the limit of a session bus is 50,000 with
    /// dbus-daemon.
    private static let mostConnections = 4_096
    /// The interface with which GNOME's session manager asks each client, by signals to that client only,
    /// whether the session may end, and notifies it when the session ends.
    private static let sessionClient = "org.gnome.SessionManager.ClientPrivate"
    /// The signals by which a desktop notifies applications of the user's actions: a click on a notification, a reply
    /// that was written in one, a global shortcut, a media key, or the answer to a dialog of the portal.
    private static let actions = [
        ("org.freedesktop.Notifications", "ActionInvoked"),
        ("org.freedesktop.Notifications", "NotificationReplied"),
        ("org.freedesktop.portal.Notification", "ActionInvoked"),
        ("org.freedesktop.portal.GlobalShortcuts", "Activated"),
        ("org.freedesktop.portal.Request", "Response"),
        ("org.kde.kglobalaccel.Component", "globalShortcutPressed"),
        ("org.gnome.SettingsDaemon.MediaKeys", "MediaPlayerKeyPressed"),
        ("org.mate.SettingsDaemon.MediaKeys", "MediaPlayerKeyPressed"),
        ("org.cinnamon.SettingsDaemon.MediaKeys", "MediaPlayerKeyPressed"),
    ]
    /// Icons are registered anew with each owner of this name. The names of other services resume applications only once
    /// in this time, in microseconds.
    private static let tray = "org.kde.StatusNotifierWatcher"
    private static let announcementsApart: UInt64 = 10_000_000
    /// Where names of services begin. Without such a rule, every connection that begins or ends would wake the agent.
    private static let namespaces = ["org", "com", "net", "io"]
    /// The most simultaneous queries for the owner of a name in a call, and the most calls that wait for
    /// their answers.
    private static let mostNames = 64
    private static let mostWaiting = 1_024
    /// - Parameters:
    ///   - session: the session bus.
    ///   - entries: the desktop entries, whose ids are names of applications and not of services.
    ///   - isSeen: gets whether calls are detected, first and whenever that changes.
    ///   - needed: gets the process that was called, the reason, and the caller's process, or 0 if it is not
    ///     known.
    init(
        session: SessionBus, monitor: SessionMonitor, loop: EventLoop, journal: Journal,
        entries: DesktopEntries, isSeen: @escaping (Bool) -> Void,
        needed: @escaping (_ pid: Int32, _ reason: DemandReason, _ caller: Int32) -> Void
    ) throws {
        self.monitor = monitor
        self.loop = loop
        self.journal = journal
        classifier = SessionName(entries: entries)
        self.isSeen = isSeen
        self.needed = needed
        announcing = try loop.timer { [unowned self] in announce() }
        // This watches nobody, and only checks whether monitoring is permitted.
        monitor.add(self)
        try session.follow { [weak self] in self?.use($0) }
    }

    func follow(_ situation: Situation) {
        let applications = situation.applications
        watch(
            applications.resting, suspended: Set(applications.suspended), among: applications.registered)
    }

    /// Watches calls to applications, each known by its main process.
    ///
    /// - Parameters:
    ///   - resting: applications that are suspended or about to be.
    ///   - suspended: those of `resting` that are suspended.
    ///   - registered: all applications: a registered application is not part of another.
    func watch(_ resting: Set<Int32>, suspended: Set<Int32>, among registered: Set<Int32>) {
        // The connections are queried again when an application is suspended, and not whenever the focus
        // moves.
        let present = (self.resting, self.suspended, self.registered)
        guard (resting, suspended, registered) != present else { return }
        (self.resting, self.suspended, self.registered) = (resting, suspended, registered)
        proceed()
    }

    // MARK: Connections

    private func proceed() {
        // The bus sends its calls to no monitor, so names are watched instead.
        if isSettled, isRefused { return }
        guard listing == nil, questions.isEmpty else {
            isStale = true
            return
        }
        isStale = false
        guard !resting.isEmpty else { return become([:]) }
        guard let bus else { return }
        do throws(BusFailure) {
            listing = try bus.callAsync(try bus.newDriverCall("ListNames")) { [unowned self] reply in
                listing = nil
                guard let names = try? reply.readStrings() else { return }
                let connections = Set(names.filter { $0.hasPrefix(":") }.prefix(Self.mostConnections))
                processes = processes.filter { !$0.key.hasPrefix(":") || connections.contains($0.key) }
                for name in connections where processes[name] == nil { ask(bus, name) }
                if questions.isEmpty { haveAsked() }
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func use(_ bus: Bus?) {
        // The session ends, or its bus is restarted: the data about it is no longer valid.
        (processes, questions, listing) = ([:], [:], nil)
        (names, waiting, announcements) = ([:], [:], [])
        self.bus = bus
        guard let bus else {
            (targets, next, wanted) = ([:], nil, [:])
            return
        }
        do throws(BusFailure) {
            announcements = try Self.namespaces.map { space throws(BusFailure) in
                try bus.watchOwner(
                    within: space, failed: { [unowned self] in journal.log(.debug, "\($0)") },
                    handler: { [unowned self] name, owner in
                        processes[name] = nil
                        if let owner, classifier.isService(name) { appeared(name, owner) }
                    })
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
        proceed()
    }

    // MARK: Announcements

    /// A service has appeared. The bus does not say who waits for it: every suspended application may do so.
    private func appeared(_ name: String, _ owner: String) {
        announcer = owner
        if name == Self.tray { return announce() }
        announcing?.arm(at: max(loop.now, announced + Self.announcementsApart))
    }

    private func announce() {
        guard let owner = announcer else { return }
        (announcer, announced) = (nil, loop.now)
        for pid in Set(targets.values).intersection(suspended) { need(pid, .announcement, owner) }
    }

    private func ask(_ bus: Bus, _ name: String) {
        do throws(BusFailure) {
            questions[name] = try bus.askProcess(of: name) { [unowned self] pid in
                questions[name] = nil
                processes[name] = pid ?? 0
                if questions.isEmpty, listing == nil { haveAsked() }
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func haveAsked() {
        if isStale { return proceed() }
        var targets: [String: Int32] = [:]
        // A process may have any number of connections.
        var applications: [Int32: Int32?] = [:]
        for (name, pid) in processes where pid > 0 && name.hasPrefix(":") {
            let known = applications[pid] ?? application(of: pid)
            applications[pid] = .some(known)
            targets[name] = known
        }
        become(targets)
    }

    // MARK: The monitor

    private func become(_ targets: [String: Int32]) {
        guard targets != wanted else { return }
        wanted = targets
        monitor.renew()
    }

    func rules() -> [String] {
        next = wanted
        // Without a connection to watch, this only checks whether monitoring is permitted.
        let names = wanted.isEmpty ? [":0.0"] : wanted.keys.sorted()
        let rules = names.flatMap { name in
            [
                "type='method_call',destination='\(name)'",
                "type='signal',interface='\(Self.sessionClient)',destination='\(name)'",
            ]
        }
        let actions = wanted.isEmpty ? [] : Self.actions
        return rules + actions.map { "type='signal',interface='\($0)',member='\($1)'" }
    }

    func monitored(_ failure: MethodError?) {
        guard let made = next else {
            if failure != nil { targets = [:] }
            return
        }
        next = nil
        if let failure { journal.log(.notice, "calls on the session bus are not watched: \(failure)") }
        if failure == nil { targets = made }
        if isSettled { return }
        isSettled = true
        isRefused = failure != nil
        isSeen(failure == nil)
    }

    func heard(_ message: borrowing Message) {
        if targets.isEmpty || message.isError { return }
        let (sender, target) = (message.sender, message.destination)
        let (isSignal, interface, member) = (message.isSignal, message.interface, message.member)
        if isSignal, Self.actions.contains(where: { $0.0 == interface && $0.1 == member }) {
            // Most such signals go to all clients, and only the addressed application knows that it is meant.
            let applications = target.map { targets[$0].map { [$0] } ?? [] }
            for pid in applications ?? Array(Set(targets.values)) { need(pid, .action, sender) }
            return
        }
        guard let destination = target else { return }
        if isSignal {
            guard let pid = targets[destination], interface == Self.sessionClient else {
                return
            }
            return need(pid, .sessionEnd, sender)
        }
        if let pid = targets[destination] { return need(pid, .call, sender) }
        // The destination is not watched: it is the bus itself, for example.
        if destination.hasPrefix(":") || destination == Bus.driver { return }
        identify(destination) { [unowned self] owner in
            // If the owner of the name cannot be queried, any of the applications may be needed.
            let needed = owner.map { Set([application(of: $0)].compactMap(\.self)) }
            for pid in needed ?? Set(targets.values) { need(pid, .call, sender) }
        }
    }

    private func need(_ pid: Int32, _ reason: DemandReason, _ caller: String?) {
        guard let caller else { return needed(pid, reason, 0) }
        identify(caller) { [unowned self] in needed(pid, reason, $0 ?? 0) }
    }

    /// The watched application to which a process belongs: the process is a descendant of its main process,
    /// or another process of its unit, such as the proxy through which a Flatpak uses the bus.
    private func application(of pid: Int32) -> Int32? {
        if resting.contains(pid) { return pid }
        if let main = proc.lineage(of: pid).map(\.pid).first(where: registered.contains) {
            return resting.contains(main) ? main : nil
        }
        guard let unit = unit(of: pid) else { return nil }
        return resting.first { self.unit(of: $0) == unit }
    }

    private func unit(of pid: Int32) -> ApplicationUnit? {
        (try? proc.unifiedCgroup(of: pid)).flatMap { ApplicationUnit(inPath: $0) }
    }

    /// Finds the process behind a name.
    ///
    /// - Parameter answered: gets its pid; 0: it has none; nil: there are already too many queries. No call
    ///   is lost because of this.
    private func identify(_ name: String, _ answered: @escaping (_ pid: Int32?) -> Void) {
        if let known = processes[name] { return answered(known) }
        let count = waiting.values.reduce(0) { $0 + $1.count }
        guard let bus, names[name] != nil || names.count < Self.mostNames, count < Self.mostWaiting else {
            return answered(nil)
        }
        waiting[name, default: []].append(answered)
        if names[name] != nil { return }
        do throws(BusFailure) {
            names[name] = try bus.askProcess(of: name) { [unowned self] pid in
                names[name] = nil
                if processes.count < Self.mostConnections,
                    Self.namespaces.contains(where: { name.hasPrefix($0 + ".") })
                {
                    processes[name] = pid ?? 0
                }
                for asker in waiting.removeValue(forKey: name) ?? [] { asker(pid ?? 0) }
            }
        } catch {
            journal.log(.debug, "\(error)")
            for asker in waiting.removeValue(forKey: name) ?? [] { asker(nil) }
        }
    }
}

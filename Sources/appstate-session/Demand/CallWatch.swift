import AppStateBus
import AppStateContract
import Desktop
import Linux
import Systemd

/// Reports calls on the session bus to applications that are suspended, or about to be.
///
/// A monitor of the bus sees such calls. It exists before an application is suspended, and stays when the application
/// runs again because it is needed, so that a call that was not answered in time is detected, too.
///
/// dbus-broker accepts rules with a destination, but still sends a monitor all calls.
final class CallWatch: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let entries: DesktopEntries
    private let needed: (_ pid: Int32, _ reason: DemandReason, _ caller: Int32) -> Void
    private let isSeen: (Bool) -> Void
    private let proc = Proc()
    private let monitor: SessionMonitor
    private var listener: SessionMonitor.Listener?
    /// For queries. Nil: there is no session bus.
    private var bus: Bus?
    private var applications = Applications()
    /// The processes of names; 0: a name has none. Unique names are never reused, and a change of the owner of another
    /// name is announced.
    private var processes: [String: Int32] = [:]
    /// Queries that the bus has not answered, by their numbers.
    private var queries: [Int: Slot] = [:]
    private var lastQuery = 0
    private var listing: Slot?
    /// The applications, by their connections.
    private var targets: [String: Set<Int32>] = [:]
    /// For the names of services that have got an owner.
    private var announcements: [Slot] = []
    /// When suspended applications were last resumed for such a name, and the owner of the next one.
    private var announced: UInt64 = 0
    private var announcer: String?
    private var announcing: Timer?

    /// A monitor without an application to watch only checks whether monitoring is permitted.
    private static let quiet = ["destination=':0.0'"]
    /// The interface with which GNOME's session manager asks each client, by signals to that client only,
    /// whether the session may end, and notifies it when the session ends.
    private static let sessionClient = "org.gnome.SessionManager.ClientPrivate"
    /// The interface with which Xfce's session manager says that it is about to ask its clients to save their state or to
    /// exit, which it does by XSMP, and the states in which it is not (`XfsmManagerState` in xfce4-session 4.18).
    private static let xfce = "org.xfce.Session.Manager"
    private static let quietStates: ClosedRange<UInt32> = 0...1
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

    /// - Parameters:
    ///   - session: the session bus.
    ///   - entries: the desktop entries, whose ids are names of applications and not of services.
    ///   - isSeen: gets whether calls are detected, first and whenever that may have changed.
    ///   - needed: gets the process that was called, the reason, and the caller's process, or 0 if it is not
    ///     known.
    init(
        session: SessionBus, monitor: SessionMonitor, loop: EventLoop, journal: Journal,
        entries: DesktopEntries,
        isSeen: @escaping (Bool) -> Void,
        needed: @escaping (_ pid: Int32, _ reason: DemandReason, _ caller: Int32) -> Void
    ) throws {
        self.monitor = monitor
        self.loop = loop
        self.journal = journal
        self.entries = entries
        self.isSeen = isSeen
        self.needed = needed
        announcing = try loop.timer { [unowned self] in announce() }
        listener = monitor.listen(rules: Self.quiet) { [unowned self] in
            heard($0)
        } changed: { failure in
            if let failure { journal.log(.notice, "calls on the session bus are not watched: \(failure)") }
            isSeen(!monitor.isRefused)
        }
        try session.follow { [weak self] in self?.use($0) }
    }

    private func use(_ bus: Bus?) {
        // The session ends, or its bus is restarted: the data about it is no longer valid.
        (processes, queries, listing, targets, announcements) = ([:], [:], nil, [:], [])
        self.bus = bus
        guard let bus else { return }
        do throws(BusFailure) {
            announcements = try Self.namespaces.map { space throws(BusFailure) in
                try bus.watchOwner(
                    within: space, failed: { [unowned self] in journal.log(.debug, "\($0)") },
                    handler: { [unowned self] name, owner in
                        processes[name] = nil
                        if let owner, isService(name) { appeared(name, owner) }
                    })
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
        list()
    }

    // MARK: Connections

    func follow(_ situation: Situation) {
        let former = applications
        applications = situation.applications
        // The connections are queried again when an application is suspended, and not whenever the focus moves.
        let isSame =
            (former.resting, former.suspended, former.registered)
            == (applications.resting, applications.suspended, applications.registered)
        if !isSame { list() }
    }

    /// Finds the connections of the applications.
    private func list() {
        // If the bus sends its calls to no monitor, names are not of interest.
        guard let bus, !monitor.isRefused else { return }
        if applications.resting.isEmpty { return watch([:]) }
        do throws(BusFailure) {
            listing = try bus.callAsync(try bus.newDriverCall("ListNames")) { [unowned self] reply in
                guard let names = try? reply.readStrings() else { return }
                let connections = Set(names.filter { $0.hasPrefix(":") })
                processes = processes.filter { !$0.key.hasPrefix(":") || connections.contains($0.key) }
                let unknown = connections.filter { processes[$0] == nil }
                var left = unknown.count
                if left == 0 { listed() }
                for name in unknown {
                    identify(name) { [unowned self] _ in
                        left -= 1
                        if left == 0 { listed() }
                    }
                }
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func listed() {
        let connections = processes.filter { $0.value > 0 && $0.key.hasPrefix(":") }
        // A process may have any number of connections.
        let pids = Set(connections.values).map { ($0, resting($0)) }
        let applications = Dictionary(uniqueKeysWithValues: pids)
        watch(connections.compactMapValues { applications[$0] }.filter { !$0.value.isEmpty })
    }

    /// The applications to which a process belongs and that are suspended, or about to be.
    private func resting(_ pid: Int32) -> Set<Int32> {
        proc.applications(of: pid, among: applications.registered).intersection(applications.resting)
    }

    private func watch(_ targets: [String: Set<Int32>]) {
        self.targets = targets
        if applications.resting.isEmpty {
            listener?.rules = Self.quiet
            return
        }
        let rules = targets.keys.sorted().flatMap { name in
            [
                "type='method_call',destination='\(name)'",
                "type='signal',interface='\(Self.sessionClient)',destination='\(name)'",
            ]
        }
        let signals = Self.actions + [(Self.xfce, "StateChanged")]
        listener?.rules = rules + signals.map { "type='signal',interface='\($0)',member='\($1)'" }
    }

    /// Finds the process behind a name. 0: it has none.
    private func identify(_ name: String, _ answered: @escaping (_ pid: Int32) -> Void) {
        if let known = processes[name] { return answered(known) }
        lastQuery += 1
        let number = lastQuery
        do throws(BusFailure) {
            queries[number] = try bus?.askProcess(of: name) { [unowned self] pid in
                queries[number] = nil
                // Other names may get another owner unnoticed.
                let isWatched = Self.namespaces.contains { name.hasPrefix($0 + ".") }
                if isWatched || name.hasPrefix(":") { processes[name] = pid ?? 0 }
                answered(pid ?? 0)
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    // MARK: Demands

    private func heard(_ message: borrowing Message) {
        if applications.resting.isEmpty || message.isError { return }
        let (sender, interface, member) = (message.sender, message.interface, message.member)
        let called = message.destination.map { targets[$0] ?? [] }
        if message.isSignal {
            if Self.actions.contains(where: { $0.0 == interface && $0.1 == member }) {
                // Most such signals go to all clients, and only the addressed application knows that it is meant.
                need(called ?? all, .action, sender)
            } else if interface == Self.sessionClient {
                need(called ?? [], .sessionEnd, sender)
            } else if interface == Self.xfce {
                // The former state, and the new one.
                let states = try? (message.readUInt32(), message.readUInt32())
                guard let states, !Self.quietStates.contains(states.1) else { return }
                need(applications.resting, .sessionEnd, sender)
            }
            return
        }
        guard let destination = message.destination, destination != Bus.driver else { return }
        if destination.hasPrefix(":") { return need(called ?? [], .call, sender) }
        identify(destination) { [unowned self] owner in need(resting(owner), .call, sender) }
    }

    private var all: Set<Int32> { targets.values.reduce(into: []) { $0.formUnion($1) } }

    private func need(_ pids: Set<Int32>, _ reason: DemandReason, _ caller: String?) {
        guard !pids.isEmpty, let caller else { return }
        identify(caller) { [unowned self] caller in
            for pid in pids { needed(pid, reason, caller) }
        }
    }

    /// A service has appeared. The bus does not say who waits for it: every suspended application may do so.
    private func appeared(_ name: String, _ owner: String) {
        announcer = owner
        if name == Self.tray { return announce() }
        announcing?.arm(at: max(loop.now, announced + Self.announcementsApart))
    }

    private func announce() {
        announced = loop.now
        need(all.intersection(applications.suspended), .announcement, announcer)
    }

    /// Whether other programs may wait for the owner of a name.
    ///
    /// The name of an application itself does not count, which is a desktop entry's id or begins with one (Desktop Entry
    /// Specification, "D-Bus Activation"), and neither does that of a media player's remote control (MPRIS).
    private func isService(_ name: String) -> Bool {
        if name.hasPrefix("org.mpris.MediaPlayer2.") { return false }
        var id = name[...]
        // `org` or `org.example` says too little about the owner of a name.
        while id.split(separator: ".").count > 2 {
            if entries.command(of: String(id)) != nil { return false }
            guard let end = id.lastIndex(where: { $0 == "." || $0 == "-" || $0 == "_" }) else { break }
            id = id[..<end]
        }
        return true
    }
}

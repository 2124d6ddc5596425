import AppStateBus
import AppStateContract
import Systemd

/// Serves `org.freedesktop.impl.portal.Background` (XDG Desktop Portal) for desktops that do not: which applications
/// have windows, and whether one may stay in the background. It starts nothing with the session.
final class BackgroundPortal {
    /// As the portal counts.
    enum AppState: UInt32 {
        case background
        /// It has a window.
        case running
        /// One of its windows has the focus.
        case active
    }

    private let journal: Journal
    private let notifier: Notifier
    private let states: () -> [String: AppState]?
    private var bus: Bus?
    private var slots: [Slot] = []
    /// What the portal may know: the applications that have windows.
    private var shown: Set<String>?

    /// The name in `packaging/appstated.portal`.
    static let name = "org.freedesktop.impl.portal.desktop.appstated"
    static let path = "/org/freedesktop/portal/desktop"
    static let interface = "org.freedesktop.impl.portal.Background"
    private static let signal = "RunningApplicationsChanged"

    /// - Parameter states: the state of each application, by its id; nil: windows are not seen.
    init(
        session: SessionBus, journal: Journal, notifier: Notifier,
        states: @escaping () -> [String: AppState]?
    ) throws(BusFailure) {
        self.journal = journal
        self.notifier = notifier
        self.states = states
        try session.follow { [weak self] in self?.use($0) }
    }

    private func use(_ bus: Bus?) {
        (slots, self.bus) = ([], bus)
        guard let bus else { return }
        let interface = Interface(
            Self.interface,
            methods: [
                Method("GetAppState", out: [("apps", "a{sv}")]) { [unowned self] in try getAppState($0) },
                Method(
                    "NotifyBackground", in: [("handle", "o"), ("app_id", "s"), ("name", "s")],
                    out: [("response", "u"), ("results", "a{sv}")]
                ) { [unowned self] in try notifyBackground($0) },
            ], signals: [Signal(Self.signal)])
        func failed(_ failure: BusFailure) {
            journal.log(.info, "the background portal is not served: \(failure)")
        }
        do throws(BusFailure) {
            slots = [
                try bus.add(interface, at: Self.path),
                try bus.askName(Self.name) { if let failure = $0 { failed(failure) } },
            ]
        } catch {
            failed(error)
        }
    }

    /// Windows have changed. The portal asks again if an application has got its first window or lost its last one.
    func update() {
        guard let bus, shown != nil, let present = present, present != shown else { return }
        shown = present
        // If the connection is lost, the portal asks the next one.
        try? bus.send(bus.newSignal(path: Self.path, interface: Self.interface, member: Self.signal))
    }

    private var present: Set<String>? {
        states().map { Set($0.filter { $0.value != .background }.keys) }
    }

    /// The portal takes an application that the answer does not name for one in the background, and ends it if it may not
    /// be there. Without windows there is no answer.
    private func getAppState(_ call: borrowing Call) throws {
        guard let states = states() else {
            throw MethodError.failed("appstate-session does not see the windows of this session")
        }
        shown = present
        try call.reply { message in
            try message.appendDictionary(
                states.sorted { $0.key < $1.key }.map { ($0.key, .uint32($0.value.rawValue)) })
        }
    }

    private func notifyBackground(_ call: borrowing Call) throws {
        let (id, name) = try call.read { message in
            try message.skip("o")
            return (try message.readString(), try message.readString())
        }
        let pending = call.deferred()
        let notification = Notifier.Notification(
            summary: "\(name.isEmpty ? id : name) runs in the background",
            body: "It has no window.",
            actions: [("allow", "Allow"), ("forbid", "Do not allow")])
        notifier.show(notification) { outcome in
            // The user forbids it, allows it, or, without an answer, allows it this once.
            let result: UInt32 =
                switch outcome?.key {
                case "forbid": 0
                case "allow": 1
                default: 2
                }
            pending.reply { message in
                try message.append(UInt32(0))
                try message.appendDictionary([("result", .uint32(result))])
            }
        }
    }
}

/// Finds the Flatpaks that the user allows to run in the background: the permission store of XDG Desktop Portal, which
/// the settings of desktops change.
final class BackgroundPermissions: Watcher {
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private var store: BusPeer?
    private var question: Slot?
    private var applications = Applications()
    private var allowed: Set<String> = []

    private static let name = "org.freedesktop.impl.portal.PermissionStore"
    private static let path = "/org/freedesktop/impl/portal/PermissionStore"
    /// The table, and the only object in it.
    private static let table = "background"

    /// - Parameter tell: gets the processes of such Flatpaks.
    init(session: SessionBus, journal: Journal, tell: @escaping (Set<Int32>) -> Void) throws(BusFailure) {
        self.journal = journal
        self.tell = tell
        try session.follow { [weak self] in self?.use($0) }
    }

    /// A Flatpak is registered under its own id.
    func follow(_ situation: Situation) {
        applications = situation.applications
        publish()
    }

    private func use(_ bus: Bus?) {
        (store, question) = (nil, nil)
        guard let bus else { return }
        let store = BusPeer(Self.name, bus: bus) { [journal] in
            journal.log(.notice, "the session bus does not report on \(Self.name): \($0)")
        }
        self.store = store
        store.onOwnerChange { [unowned self] in if self.store?.owner != nil { ask(bus) } }
        do throws(BusFailure) {
            try store.onSignal(
                "path='\(Self.path)',interface='\(Self.name)',member='Changed',arg0='\(Self.table)'"
            ) { [unowned self] _ in ask(bus) }
            try store.start()
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func publish() {
        tell(Set(applications.entries.filter { allowed.contains($0.value.name) }.keys))
    }

    private func ask(_ bus: Bus) {
        do throws(BusFailure) {
            // A Flatpak that runs has started the store.
            let call = try bus.newCall(
                destination: Self.name, path: Self.path, interface: Self.name, member: "Lookup")
            try call.forbidStart()
            try call.append(Self.table)
            try call.append(Self.table)
            question = try bus.callAsync(call) { [unowned self] reply in
                question = nil
                // Without the store or the table, the user has allowed nothing.
                allowed = reply.isError ? [] : (try? Self.allowed(in: reply)) ?? []
                publish()
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private static func allowed(in reply: borrowing Message) throws(BusFailure) -> Set<String> {
        var ids: Set<String> = []
        _ = try reply.enter(.array, "{sas}")
        while try reply.enter(.dictEntry, "sas") {
            let id = try reply.readString()
            if try reply.readStrings() == ["yes"] { ids.insert(id) }
            try reply.exit()
        }
        try reply.exit()
        return ids
    }
}

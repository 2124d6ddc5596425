import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd

/// Serves `org.freedesktop.impl.portal.Background` (XDG Desktop Portal) for desktops that do not: which applications
/// have windows, whether one may stay in the background, and which start with the session.
final class BackgroundPortal {
    /// As the portal counts.
    enum AppState: UInt32 {
        case background
        /// It has a window.
        case running
        /// One of its windows has the focus.
        case active
    }

    /// What `NotifyBackground` answers: the user's choice.
    private enum Choice: UInt32 {
        case forbid
        case allow
        case allowOnce
    }

    private let journal: Journal
    private let notifier: Notifier
    private let states: () -> [String: AppState]?
    private let autostart: Autostart?
    private var bus: Bus?
    private var slots: [Slot] = []
    /// The questions that the user has not answered, by the paths of the objects that end them.
    private var questions: [String: Slot] = [:]
    /// What the portal may know: the applications that have windows.
    private var shown: Set<String>?

    /// The name in `packaging/appstated.portal`.
    static let name = "org.freedesktop.impl.portal.desktop.appstated"
    static let path = "/org/freedesktop/portal/desktop"
    static let interface = "org.freedesktop.impl.portal.Background"
    private static let signal = "RunningApplicationsChanged"

    /// - Parameters:
    ///   - autostart: nil: there is no directory for it.
    ///   - states: the state of each application, by its id; nil: windows are not seen.
    init(
        journal: Journal, notifier: Notifier, autostart: Autostart? = Autostart(),
        states: @escaping () -> [String: AppState]?
    ) {
        self.journal = journal
        self.notifier = notifier
        self.autostart = autostart
        self.states = states
    }

    /// - Parameter bus: the session bus.
    func start(on bus: Bus) throws(BusFailure) {
        stop()
        let interface = Interface(
            Self.interface,
            methods: [
                Method("GetAppState", out: [("apps", "a{sv}")]) { [unowned self] in try getAppState($0) },
                Method(
                    "NotifyBackground", in: [("handle", "o"), ("app_id", "s"), ("name", "s")],
                    out: [("response", "u"), ("results", "a{sv}")]
                ) { [unowned self] in try notifyBackground($0) },
                Method(
                    "EnableAutostart",
                    in: [("app_id", "s"), ("enable", "b"), ("commandline", "as"), ("flags", "u")],
                    out: [("result", "b")]
                ) { [unowned self] in try enableAutostart($0) },
            ], signals: [Signal(Self.signal)])
        slots = [
            try bus.add(interface, at: Self.path),
            try bus.askName(Self.name) { [journal] failure in
                if let failure { journal.log(.info, "the background portal is not served: \(failure)") }
            },
        ]
        self.bus = bus
    }

    func stop() {
        (slots, questions) = ([], [:])
        bus = nil
    }

    /// Windows have changed. The portal asks again if an application has got its first window or lost its last one.
    func update() {
        guard let bus, shown != nil, let present = present, present != shown else { return }
        shown = present
        do throws(BusFailure) {
            try bus.send(
                try bus.newSignal(path: Self.path, interface: Self.interface, member: Self.signal))
        } catch {
            journal.log(.debug, "\(error)")
        }
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
        let (handle, id, name) = try call.read { message in
            (try message.readObjectPath(), try message.readString(), try message.readString())
        }
        let pending = call.deferred()
        let notification = Notifier.Notification(
            summary: "\(name.isEmpty ? id : name) runs in the background",
            body: "It has no window.",
            actions: [("allow", "Allow"), ("forbid", "Do not allow")])
        let number = notifier.show(notification) { [weak self] outcome in
            self?.questions[handle] = nil
            // Without an answer, nothing is ended and nothing is stored.
            let choice: Choice =
                switch outcome {
                case .chosen(key: "allow", _): .allow
                case .chosen(key: "forbid", _): .forbid
                case .chosen, .closed: .allowOnce
                }
            pending.reply { message in
                try message.append(UInt32(0))
                try message.appendDictionary([("result", .uint32(choice.rawValue))])
            }
        }
        guard !pending.isAnswered else { return }
        let request = Interface(
            "org.freedesktop.impl.portal.Request",
            methods: [
                Method("Close") { [notifier] call in
                    notifier.close(number)
                    try call.reply()
                }
            ])
        questions[handle] = try? bus?.add(request, at: handle)
    }

    private func enableAutostart(_ call: borrowing Call) throws {
        let (text, enables, command, flags) = try call.read { message in
            (
                try message.readString(), try message.readBool(), try message.readStrings(),
                try message.readUInt32()
            )
        }
        guard let id = ApplicationID(text) else {
            throw MethodError.invalidArgs("app_id: \"\(text)\" is not an application id")
        }
        guard let autostart else { throw MethodError.failed("neither XDG_CONFIG_HOME nor HOME is set") }
        let isEnabled =
            enables
            ? try autostart.enable(id, command, isActivatable: flags & 1 != 0) : try autostart.disable(id)
        try call.reply { try $0.append(isEnabled) }
    }
}

/// The entries that start applications with the session (Desktop Application Autostart Specification). Only those with
/// the key `X-Flatpak`, which portals write, are changed.
struct Autostart {
    private let directory: String

    init(directory: String) { self.directory = directory }

    /// Nil: the user has no directory for it.
    init?() {
        if let own = Environment["XDG_CONFIG_HOME"], own.hasPrefix("/") {
            directory = own + "/autostart"
        } else if let home = Environment["HOME"], home.hasPrefix("/") {
            directory = home + "/.config/autostart"
        } else {
            return nil
        }
    }

    private func path(_ id: ApplicationID) -> String { "\(directory)/\(id.rawValue).desktop" }

    /// Nil: there is no entry.
    private func isOurs(_ id: ApplicationID) throws(KernelFailure) -> Bool? {
        do throws(KernelFailure) {
            let bytes = try WholeFile.read(path(id))
            let lines = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline)
            return lines.contains { $0.hasPrefix("X-Flatpak=") }
        } catch {
            guard error.isNoSuchFile else { throw error }
            return nil
        }
    }

    /// - Returns: whether it starts with the session from now on.
    func enable(
        _ id: ApplicationID, _ command: [String], isActivatable: Bool
    ) throws(KernelFailure) -> Bool {
        // Control characters would begin another line.
        let isPlain = command.allSatisfy { $0.unicodeScalars.allSatisfy { $0.value >= 0x20 } }
        guard !command.isEmpty, isPlain else { return false }
        if try isOurs(id) == false { return true }
        try WholeFile.makeDirectory(directory)
        let text = """
            [Desktop Entry]
            Type=Application
            Name=\(id.rawValue)
            Exec=\(command.map(Self.quoted).joined(separator: " "))
            X-Flatpak=\(id.rawValue)
            \(isActivatable ? "DBusActivatable=true\n" : "")
            """
        try WholeFile.write(text, to: path(id))
        return true
    }

    /// - Returns: whether it still starts with the session.
    func disable(_ id: ApplicationID) throws(KernelFailure) -> Bool {
        guard let isOurs = try isOurs(id) else { return false }
        if isOurs { try WholeFile.remove(path(id)) }
        return !isOurs
    }

    /// An argument as in `Exec` (Desktop Entry Specification): in quotes, then escaped as any value of the file is.
    private static func quoted(_ argument: String) -> String {
        var text = "\""
        for character in argument.unicodeScalars {
            switch character {
            case "\"", "`", "$": text += "\\\\"
            case "\\": text += "\\\\\\"
            case "%": text += "%"
            default: break
            }
            text.unicodeScalars.append(character)
        }
        return text + "\""
    }
}

/// Finds the Flatpaks that the user allows to run in the background: the permission store of XDG Desktop Portal, which
/// the settings of desktops change.
final class BackgroundPermissions {
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private var bus: Bus?
    private var store: BusPeer?
    private var question: Slot?
    private var flatpaks: [Int32: String] = [:]
    private var allowed: Set<String> = []
    private var isAsked = false

    private static let name = "org.freedesktop.impl.portal.PermissionStore"
    private static let path = "/org/freedesktop/impl/portal/PermissionStore"
    /// The table, and the only object in it.
    private static let table = "background"

    /// - Parameter tell: gets the processes of such Flatpaks.
    init(journal: Journal, tell: @escaping (Set<Int32>) -> Void) {
        self.journal = journal
        self.tell = tell
    }

    /// - Parameter bus: the session bus.
    func start(on bus: Bus) throws(BusFailure) {
        stop()
        let store = BusPeer(Self.name, bus: bus) { [journal] in
            journal.log(.notice, "the session bus does not report on \(Self.name): \($0)")
        }
        store.onOwnerChange { [unowned self] in if store.owner != nil, isAsked { ask() } }
        try store.onSignal(
            "path='\(Self.path)',interface='\(Self.name)',member='Changed',arg0='\(Self.table)'"
        ) {
            [unowned self] _ in if isAsked { ask() }
        }
        try store.start()
        (self.bus, self.store) = (bus, store)
        learn(flatpaks)
    }

    func stop() {
        (bus, store, question) = (nil, nil, nil)
        isAsked = false
    }

    /// Takes the ids of the Flatpaks that run, by their main processes. The first one makes us ask, which starts the store.
    func learn(_ flatpaks: [Int32: String]) {
        self.flatpaks = flatpaks
        if !flatpaks.isEmpty, !isAsked { ask() }
        publish()
    }

    private func publish() {
        tell(Set(flatpaks.filter { allowed.contains($0.value) }.keys))
    }

    private func ask() {
        guard let bus else { return }
        isAsked = true
        do throws(BusFailure) {
            let call = try bus.newCall(
                destination: Self.name, path: Self.path, interface: Self.name, member: "Lookup")
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

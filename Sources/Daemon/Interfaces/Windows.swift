import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

private typealias Name = ApplicationMethod

/// The windows of applications: what reporters say about them, and how one comes to the front.
extension Daemon {
    func windowMethods() -> [Method] {
        [
            Method(Name.activate, in: [("options", "a{sv}")]) { [unowned self] call in
                let options = try call.message.readDictionary()
                let (application, connection) = try managedApplication(call)
                var request = try LaunchRequest(toShowWith: options)
                request.source = self.application(of: connection)?.id
                let number = application.number
                guard agent(.presenter, of: application.user, in: application.session) != nil else {
                    throw Self.noAgent(application.session)
                }
                if let hold = application.holds.first(where: {
                    $0.reason == .request && $0.holder != connection.holder
                }) {
                    throw MethodError(
                        .failed, "Application \(number) stays suspended at the request of \(hold.holder)")
                }
                // The user wants to use it.
                try perform(.resume(number, holder: connection.holder))
                present(core.application(number) ?? application, request, answering(call))
            },
            Method(Name.listWindows, out: [("windows", "aa{sv}")]) { [unowned self] call in
                let (application, _) = try managedApplication(call)
                let windows = core.machine.shownWindows(of: application.number)
                try call.reply { message throws(BusFailure) in
                    try message.open(.array, "a{sv}")
                    for window in windows { try message.appendDictionary(window.entries) }
                    try message.close()
                }
            },
        ]
    }
}

/// `FrontActivity`: what is continued on another machine.
extension Daemon {
    /// The application in front, and its activity. Both are the reader's own user's, or the reader is root.
    func appendFrontActivity(to message: borrowing Message) throws {
        let front = frontApplication(for: try caller())
        let activity = front.flatMap { table[$0.number]?.userActivity }
        let path = front.map { BusNames.path(ofApplication: $0.number.rawValue) } ?? "/"
        try message.withContainer(.struct, "osa{sv}") {
            try message.append(objectPath: path)
            try append(activity, to: message)
        }
    }

    /// The type and the info of an activity; both are empty if there is none.
    func append(_ activity: Registered.UserActivity?, to message: borrowing Message) throws {
        try message.append(activity?.type ?? "")
        let info = activity?.info ?? [:]
        try message.appendDictionary(info.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
    }

    /// A caller that came through ssh(1) has a session of its own, in which there are no windows.
    private func frontApplication(for connection: Connection) -> Application? {
        let machine = core.machine
        let number =
            machine.focusedApplication(in: session(of: connection))
            ?? Login.displaySession(ofUser: connection.user).flatMap {
                machine.focusedApplication(in: .login($0))
            }
            ?? machine.focusedApplication(in: .user(connection.user))
        guard let application = number.flatMap({ machine.applications[$0] }), maySee(application, connection)
        else { return nil }
        return application
    }
}

extension ShownWindow {
    fileprivate var entries: [(String, Variant)] {
        let login = if case .login(let id) = session { id } else { "" }
        return [
            (ShownWindowKey.window.rawValue, .uint64(number)),
            (ShownWindowKey.state.rawValue, .string(state.rawValue)),
            (ShownWindowKey.title.rawValue, .string(title)),
            (ShownWindowKey.session.rawValue, .string(login)),
            (ShownWindowKey.minimized.rawValue, .bool(isMinimized)),
        ]
    }
}

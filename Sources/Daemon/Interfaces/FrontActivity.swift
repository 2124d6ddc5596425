import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

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

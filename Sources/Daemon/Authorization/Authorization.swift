import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// Who may see and do what (dbus-api, the table): by the credentials the bus gives, before anything else.
/// Without polkit: the same user, and root.
extension Daemon {
    /// The caller of the message being dispatched.
    func caller() throws(MethodError) -> Connection {
        guard let sender = bus.currentSender, let connection = connections[sender] else {
            throw MethodError(.accessDenied, "The bus does not say who is calling")
        }
        return connection
    }

    /// Whether an application exists for a connection at all.
    func maySee(_ application: Application, _ connection: Connection) -> Bool {
        connection.mayManage(user: application.user)
            || connection.isSandboxed && isOwn(application.number, connection)
    }

    /// Whether the connection's process is in the application's extent.
    func isOwn(_ number: ApplicationNumber, _ connection: Connection) -> Bool {
        machine.owner(of: connection.lineage) == number
    }

    /// The application at a path, for a caller that may see it; for others there is none.
    func visibleApplication(
        at path: String, to connection: Connection
    ) throws(MethodError) -> Application {
        guard let number = BusNames.applicationNumber(inPath: path),
            let application = machine.applications[ApplicationNumber(number)], maySee(application, connection)
        else {
            throw MethodError(.noSuchApplication, "No application at \(path)")
        }
        return application
    }

    /// The application of a call that manages it: its user's, or root's; a sandbox manages nothing.
    func managedApplication(_ call: borrowing Call) throws(MethodError) -> (Application, Connection) {
        let connection = try caller()
        let application = try visibleApplication(at: call.path, to: connection)
        guard connection.mayManage(user: application.user) else {
            throw MethodError(
                .accessDenied, "A sandboxed process may only use the delegate's methods, not \(call.member)")
        }
        return (application, connection)
    }

    /// The application of a call of the delegate's methods: by its own processes only, root's or not.
    func ownApplication(_ call: borrowing Call) throws(MethodError) -> (Application, Connection) {
        let connection = try caller()
        let application = try visibleApplication(at: call.path, to: connection)
        guard isOwn(application.number, connection), connection.user == application.user else {
            throw MethodError(
                .notDelegate,
                "Process \(connection.pid) is none of application \(application.number)'s: \(call.member) is for its own"
            )
        }
        return (application, connection)
    }

    /// Refuses what only a caller outside of any sandbox may do.
    func requireUnconfined(_ connection: Connection, _ member: String) throws(MethodError) {
        if connection.isSandboxed {
            throw MethodError(.accessDenied, "A sandboxed process may not call \(member)")
        }
    }
}

extension MethodError {
    init(_ name: ErrorName, _ message: String) {
        self.init(name.rawValue, message)
    }

    init(_ refusal: Refusal) {
        self.init(refusal.errorName, refusal.message)
    }
}

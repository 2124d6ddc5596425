import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Who may see and do what (dbus-api, the table): by the credentials the bus gives, before anything else, and by
/// what polkit said before the call was dispatched. Without polkit: the same user, and root.
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
        connection.maySee(user: application.user)
            || connection.isSandboxed && isOwn(application, connection)
            || gate.verdict(on: .application(application.number.rawValue), for: connection) == .yes
    }

    /// Refuses to manage what is another user's, unless polkit allows it. A sandbox manages nothing.
    func requireManagement(
        of target: Target, user: UInt32, _ connection: Connection, _ what: @autoclosure () -> String
    ) throws(MethodError) {
        if connection.mayManage(user: user) { return }
        switch gate.verdict(on: target, for: connection) {
        case .yes?: return
        case .challenge?:
            throw MethodError(
                .interactiveAuthorizationRequired,
                "\(what()): somebody has to authenticate (\(Polkit.Action.manage.rawValue))")
        case .unanswered?: throw MethodError(.accessDenied, "\(what()): polkit did not answer in time")
        case .no?, nil: throw MethodError(.accessDenied, what())
        }
    }

    /// Whether the connection's process is in the application's extent, and its user's: what sudo(8) starts is in the
    /// extent, too. A sandbox's own is in the same sandbox: who started it from outside of it is not.
    func isOwn(_ application: Application, _ connection: Connection) -> Bool {
        guard connection.user == application.user else { return false }
        switch connection.confinement {
        case .none:
            return machine.owner(of: connection.lineage) == application.number
        case .within(let sandbox):
            return machine.owner(of: connection.lineage) == application.number
                && self.sandbox(of: application) == sandbox
        case .proxy(let unit):
            // The unit's name, which is known, spares a look at each of its user's processes.
            guard let registered = table[application.number],
                unit.hasSuffix("/" + registered.unit)
            else { return false }
            return self.sandbox(of: application).map { isInside($0, of: unit) } ?? false
        case .unknown:
            return false
        }
    }

    /// Whether it is that of a process inside of the Flatpak's instance: not its proxy, nor what started it.
    func isInside(_ sandbox: Sandbox, of unit: String) -> Bool {
        guard sandbox.flatpak == unit, let own = try? proc.sandbox(of: getpid()) else { return false }
        return sandbox.namespace != own.namespace || sandbox.namespaceDevice != own.namespaceDevice
    }

    /// Where the application's process is; nil: it has ended.
    private func sandbox(of application: Application) -> Sandbox? {
        let process = application.process
        guard let sandbox = try? proc.sandbox(of: process.pid),
            (try? proc.identity(of: process.pid)) == process.identity
        else { return nil }
        return sandbox
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

    /// The application of a call that manages it: its user's, root's, or with polkit's consent; a sandbox manages
    /// nothing.
    func managedApplication(_ call: borrowing Call) throws(MethodError) -> (Application, Connection) {
        let connection = try caller()
        let application = try visibleApplication(at: call.path, to: connection)
        try requireManagement(of: application, connection, call.member)
        return (application, connection)
    }

    /// Refuses who may not manage an application.
    func requireManagement(
        of application: Application, _ connection: Connection, _ member: String
    ) throws(MethodError) {
        try requireUnconfined(connection, member)
        try requireManagement(
            of: .application(application.number.rawValue), user: application.user, connection,
            "User \(connection.user) may not \(member) application \(application.number) of user \(application.user)"
        )
    }

    /// The application of a call of the delegate's methods: by its own processes only, root's or not.
    func ownApplication(_ call: borrowing Call) throws(MethodError) -> (Application, Connection) {
        let connection = try caller()
        let application = try visibleApplication(at: call.path, to: connection)
        guard isOwn(application, connection) else {
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

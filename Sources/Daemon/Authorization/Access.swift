import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// The permissions of callers (dbus-api, the table): a user's applications are the user's, or root's.
final class Access {
    private let bus: Bus
    private let connections: Connections
    private let proc: Proc
    private let core: Core
    private let table: ApplicationTable
    /// For whom a property is being written.
    private var recipient: Connection?

    init(bus: Bus, connections: Connections, proc: Proc, core: Core, table: ApplicationTable) {
        self.bus = bus
        self.connections = connections
        self.proc = proc
        self.core = core
        self.table = table
    }

    /// The caller of the message being dispatched.
    func caller() throws(MethodError) -> Connection {
        guard let sender = bus.currentSender else {
            throw MethodError(.accessDenied, "The bus does not identify the caller")
        }
        do {
            return try connections.connection(named: sender)
        } catch let failure as KernelFailure {
            throw .exhausted(failure)
        } catch {
            throw MethodError(.accessDenied, "The bus does not identify the caller: \(error)")
        }
    }

    /// The caller of a method that no sandboxed process may call.
    func unconfinedCaller(of member: String) throws(MethodError) -> Connection {
        let connection = try caller()
        try requireUnconfined(connection, member)
        return connection
    }

    private func requireUnconfined(_ connection: Connection, _ member: String) throws(MethodError) {
        if connection.isSandboxed {
            throw MethodError(.accessDenied, "A sandboxed process may not call \(member)")
        }
    }

    /// Writes properties whose values depend on their reader.
    func write(for recipient: Connection, _ write: () throws -> Void) throws {
        self.recipient = recipient
        defer { self.recipient = nil }
        try write()
    }

    /// The connection that a property is written for; nil: the bus does not identify it.
    var reader: Connection? { recipient ?? (try? caller()) }

    /// Whether a connection may know that an application exists.
    func maySee(_ application: Application, _ connection: Connection) -> Bool {
        connection.mayManage(user: application.user)
            || connection.isSandboxed && isOwn(application, connection)
    }

    /// Whether the connection's process is in the application's extent and belongs to the application's user. The
    /// extent alone is not enough, because it includes what sudo(8) starts. A sandboxed connection must be in the
    /// application's own sandbox: the process that started it from outside is not one of its own.
    func isOwn(_ application: Application, _ connection: Connection) -> Bool {
        guard connection.user == application.user else { return false }
        switch connection.confinement {
        case .none:
            return core.machine.owner(of: connection.lineage) == application.number
        case .within(let sandbox):
            return core.machine.owner(of: connection.lineage) == application.number
                && self.sandbox(of: application) == sandbox
        case .proxy(let unit):
            // The unit's name is known, so comparing it first avoids an examination of each of the user's
            // processes.
            guard let registered = table[application.number], isOfProxy(registered, unit, of: connection)
            else { return false }
            return self.sandbox(of: application).map { isInside($0, of: unit) } ?? false
        case .unknown:
            return false
        }
    }

    /// The same for an application by its number; false if it has ended.
    func isOwn(_ number: ApplicationNumber, _ connection: Connection) -> Bool {
        core.application(number).map { isOwn($0, connection) } ?? false
    }

    /// The applications that a sandboxed connection may act for, in order; none for other connections.
    func ownApplications(of connection: Connection) -> [ApplicationNumber] {
        guard connection.isSandboxed else { return [] }
        return possiblyVisible(to: connection).filter { isOwn($0, connection) }
    }

    /// The application on whose behalf a connection calls; nil: it belongs to none.
    func application(of connection: Connection) -> Application? {
        if let number = connection.application(in: core.machine) {
            return core.machine.applications[number].flatMap { isOwn($0, connection) ? $0 : nil }
        }
        // The connection is new to this daemon, or another one of the same Flatpak. An instance has one application.
        guard case .proxy = connection.confinement else { return nil }
        let own = ownApplications(of: connection)
        guard own.count == 1 else { return nil }
        connection.application = own[0]
        return core.machine.applications[own[0]]
    }

    /// Whether an application is in the unit of the connection's proxy, as far as names say.
    func isOfProxy(_ application: Registered, _ unit: String, of connection: Connection) -> Bool {
        application.user == connection.user && unit.hasSuffix("/" + application.unit)
    }

    /// Whether the sandbox is that of a process inside the Flatpak instance, not of its proxy or of the process that
    /// started it.
    func isInside(_ sandbox: Sandbox, of unit: String) -> Bool {
        guard sandbox.flatpak == unit, let own = try? proc.sandbox(of: getpid()) else { return false }
        return sandbox.namespace != own.namespace || sandbox.namespaceDevice != own.namespaceDevice
    }

    /// The sandbox of the application's process; nil: the process has ended.
    private func sandbox(of application: Application) -> Sandbox? {
        let process = application.process
        guard let sandbox = try? proc.sandbox(of: process.pid),
            (try? proc.identity(of: process.pid)) == process.identity
        else { return nil }
        return sandbox
    }

    /// The application at a path, if the caller may see it. For other callers it does not exist.
    func visibleApplication(
        at path: String, to connection: Connection
    ) throws(MethodError) -> Application {
        guard let number = BusNames.applicationNumber(inPath: path),
            let application = core.machine.applications[ApplicationNumber(number)],
            maySee(application, connection)
        else {
            throw MethodError(.noSuchApplication, "No application at \(path)")
        }
        return application
    }

    /// The application of a call that manages it. The caller must be its user or root; a sandboxed caller manages
    /// nothing.
    func managedApplication(_ call: borrowing Call) throws(MethodError) -> (Application, Connection) {
        let connection = try caller()
        let application = try visibleApplication(at: call.path, to: connection)
        try requireUnconfined(connection, call.member)
        return (application, connection)
    }

    /// The application of a call to one of the delegate's methods. Only the application's own processes may call them;
    /// root is no exception.
    func ownApplication(_ call: borrowing Call) throws(MethodError) -> (Application, Connection) {
        let connection = try caller()
        let application = try visibleApplication(at: call.path, to: connection)
        guard isOwn(application, connection) else {
            throw MethodError(
                .notDelegate,
                "Process \(connection.pid) is not in application \(application.number), and may not call \(call.member)"
            )
        }
        return (application, connection)
    }

    /// The applications that a connection might be allowed to see, in order: no process is examined for this.
    /// `maySee` decides.
    func possiblyVisible(to connection: Connection) -> [ApplicationNumber] {
        let numbers: [ApplicationNumber]
        switch connection.confinement {
        case .none:
            numbers = table.all.filter { connection.mayManage(user: $0.user) }.map(\.number)
        case .within:
            numbers = [core.machine.owner(of: connection.lineage)].compactMap { $0 }
        case .proxy(let unit):
            numbers = table.all.filter { isOfProxy($0, unit, of: connection) }.map(\.number)
        case .unknown:
            numbers = []
        }
        return numbers.sorted()
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

import AppStateBus
import AppStateContract
import Glibc
import Linux

/// The user's service manager on the user's bus: org.freedesktop.systemd1(5). Each object has one call in progress.
final class ServiceManager {
    private let bus: Bus
    private let loop: EventLoop
    private var call: Slot?
    private var timer: Timer?

    static let name = "org.freedesktop.systemd1"
    static let path = "/org/freedesktop/systemd1"
    static let manager = "org.freedesktop.systemd1.Manager"

    /// The error for a bus without a service manager.
    static let absence = MethodError(
        ErrorName.notSupported.rawValue, "there is no service manager on the bus of the user")

    /// The errors of such a bus.
    private static let absences: Set<String> = [
        "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
        "org.freedesktop.DBus.Error.Disconnected",
    ]
    /// How long a service manager that runs may take to appear on the bus, in microseconds: the session or its bus may
    /// have just begun. The daemon waits for a scope for 2 s.
    private static let managerPatience: UInt64 = 1_500_000
    /// How long it may take to report how a process ended, in microseconds.
    private static let endPatience: UInt64 = 10_000_000
    /// The pause before it is asked again, in microseconds.
    private static let pause: UInt64 = 50_000

    init(_ bus: Bus, _ loop: EventLoop) { (self.bus, self.loop) = (bus, loop) }

    /// Whether the user has a service manager, on the bus or not. The check looks for the service manager's own socket.
    ///
    /// - Parameter directory: the user's runtime directory; nil: there is none.
    static func isRunning(in directory: String?) -> Bool {
        directory.map { access("\($0)/systemd/private", F_OK) == 0 } ?? false
    }

    /// Reads a property of the manager.
    ///
    /// - Parameter isRunning: a manager that is not on the bus will be.
    func get(
        _ property: String, isRunning: Bool, _ answered: @escaping (Result<Variant, MethodError>) -> Void
    ) throws(BusFailure) {
        try get(property, until: isRunning ? loop.now + Self.managerPatience : 0, answered)
    }

    private func get(
        _ property: String, until end: UInt64, _ answered: @escaping (Result<Variant, MethodError>) -> Void
    ) throws(BusFailure) {
        let message = try bus.newPropertyCall(
            property, of: Self.manager, destination: Self.name, path: Self.path)
        try message.forbidStart()
        call = try bus.callAsync(message) { [self] reply in
            call = nil
            guard let error = reply.error else {
                return answered((try? reply.readVariant()).map { .success($0) } ?? .failure(Self.absence))
            }
            guard Self.absences.contains(error.name) else { return answered(.failure(error)) }
            guard loop.now < end else { return answered(.failure(Self.absence)) }
            again { [self] in
                do throws(BusFailure) {
                    try get(property, until: end, answered)
                } catch {
                    answered(.failure(MethodError(error)))
                }
            }
        }
    }

    private func again(_ body: @escaping () -> Void) {
        timer = try? loop.timer { [self] in
            timer = nil
            body()
        }
        timer?.arm(at: loop.now + Self.pause)
    }

    /// Starts a transient unit.
    ///
    /// - Parameter answered: called when the manager begins to start it, or with the manager's error.
    func start(
        _ unit: String, _ properties: [(String, Variant)], _ answered: @escaping (MethodError?) -> Void
    ) throws(BusFailure) {
        try send("StartTransientUnit", answered) { message throws(BusFailure) in
            try message.append(unit)
            try message.append("fail")
            try message.withContainer(.array, "(sv)") { () throws(BusFailure) in
                for (name, value) in properties {
                    try message.withContainer(.struct, "sv") { () throws(BusFailure) in
                        try message.append(name)
                        try message.append(value)
                    }
                }
            }
            try message.withContainer(.array, "(sa(sv))") { () throws(BusFailure) in }
        }
    }

    /// Calls a method of the manager.
    func send(
        _ member: String, _ answered: @escaping (MethodError?) -> Void = { _ in },
        _ write: (borrowing Message) throws(BusFailure) -> Void
    ) throws(BusFailure) {
        let message = try bus.newCall(
            destination: Self.name, path: Self.path, interface: Self.manager, member: member)
        try message.forbidStart()
        try write(message)
        call = try bus.callAsync(message) { [self] reply in
            call = nil
            answered(reply.error)
        }
    }

    /// Ends our reference to a unit (`AddRef`).
    func release(_ unit: String) {
        try? send("UnrefUnit") { message throws(BusFailure) in try message.append(unit) }
    }

    /// Asks how the main process of a service ended, which has ended. `unknown`: the manager does not report it.
    func askEnding(of unit: String, _ answered: @escaping (ExitStatus) -> Void) {
        askEnding(of: unit, until: loop.now + Self.endPatience, answered)
    }

    private func askEnding(of unit: String, until end: UInt64, _ answered: @escaping (ExitStatus) -> Void) {
        do throws(BusFailure) {
            let message = try bus.newCall(
                destination: Self.name, path: UnitName.objectPath(unit), interface: BusNames.properties,
                member: "GetAll")
            try message.forbidStart()
            try message.append("org.freedesktop.systemd1.Service")
            call = try bus.callAsync(message) { [self] reply in
                call = nil
                guard let entries = try? reply.readDictionary() else { return answered(.unknown) }
                let values = Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
                if let ending = Self.ending(values) { return answered(ending) }
                // The manager has not seen yet that it has ended.
                guard loop.now < end else { return answered(.unknown) }
                again { [self] in askEnding(of: unit, until: end, answered) }
            }
        } catch {
            answered(.unknown)
        }
    }

    private static func ending(_ values: [String: Variant]) -> ExitStatus? {
        guard case .int32(let code)? = values["ExecMainCode"],
            case .int32(let status)? = values["ExecMainStatus"]
        else { return .unknown }
        // CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2).
        switch code {
        case 1: return .exited(status)
        case 2, 3: return .signalled(status, coreDumped: code == 3)
        default: return nil
        }
    }
}

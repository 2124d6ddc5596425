import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc

/// What the exit status says.
enum Verdict: Int32 {
    case refused = 1
    case ambiguous = 2
    case noSuchApplication = 3
    case notRunning = 4
}

/// What cannot be done, as a sentence for standard error, and the exit status.
struct Failure: Error {
    let sentence: String
    let verdict: Verdict

    init(_ sentence: String, _ verdict: Verdict = .refused) {
        self.sentence = sentence
        self.verdict = verdict
    }

    /// Any other error is a refusal. Those that ArgumentParser throws are its own, and thrown on.
    init(_ error: any Error) throws {
        switch error {
        case let failure as Failure: self = failure
        case let failure as BusFailure: self.init(failure.sentence)
        default: throw error
        }
    }
}

/// The service on the bus, as its client sees it.
final class Client {
    let bus: Bus

    init(address: String?) throws {
        do {
            if let address { bus = try Bus.open(address: address) } else { bus = try Bus.system() }
        } catch {
            // libsystemd passes over an entry without a transport that it knows: nobody is left to connect to.
            if let address, error.errno == EINVAL || !address.contains(":") {
                throw ValidationError("\"\(address)\" is no address of a bus.")
            }
            let place = address ?? getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) }
            let reason = String(cString: strerror(error.errno))
            throw Failure(
                "\(place.map { "the bus at \"\($0)\"" } ?? "the system bus") cannot be reached: \(reason)",
                .notRunning)
        }
    }

    /// The daemon waits 5 min for somebody to authenticate, and answers then.
    private static let patience: UInt64 = 310_000_000

    /// Calls a method; a refusal ends the program with the daemon's own sentence.
    @discardableResult
    func call<Name: MethodName>(
        _ method: Name, at path: String = BusNames.root,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        try call(path, Name.interface, method.rawValue, body)
    }

    private func call(
        _ path: String, _ interface: String, _ member: String, _ body: (borrowing Message) throws -> Void
    ) throws -> Message {
        let message = try bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try message.allowInteraction()
        try body(message)
        do {
            return try bus.call(message, timeout: Self.patience)
        } catch {
            throw Self.explained(error)
        }
    }

    private static func explained(_ error: BusFailure) -> Failure {
        switch error.name {
        case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
            "org.freedesktop.systemd1.NoSuchUnit":
            Failure("appstated is not running; start it with: systemctl start appstated", .notRunning)
        case ErrorName.noSuchApplication.rawValue:
            Failure(error.sentence, .noSuchApplication)
        case ErrorName.accessDenied.rawValue, ErrorName.interactiveAuthorizationRequired.rawValue:
            Failure("not allowed: \(error.sentence)")
        default:
            Failure(error.sentence)
        }
    }

    // MARK: Applications

    /// A row of `ListApplications`.
    struct Row {
        let path: String
        let id: String
        let pid: UInt32
        let uid: UInt32
        let state: String

        var number: UInt32 { BusNames.applicationNumber(inPath: path) ?? 0 }
    }

    func applications() throws -> [Row] {
        let reply = try call(ManagerMethod.listApplications)
        var rows: [Row] = []
        try reply.withEntered(.array, "(osuus)") {
            while !reply.atEnd {
                try reply.withEntered(.struct, "osuus") {
                    rows.append(
                        Row(
                            path: try reply.readObjectPath(), id: try reply.readString(),
                            pid: try reply.readUInt32(), uid: try reply.readUInt32(),
                            state: try reply.readString()))
                }
            }
        }
        return rows
    }

    /// Why an application is in its state.
    func explanation(of path: String) throws -> [(key: String, value: Variant)] {
        try call(ApplicationMethod.explain, at: path).readDictionary()
    }

    /// The object path of the application that a user means.
    func path(of name: String) throws -> String {
        if BusNames.applicationNumber(inPath: name) != nil { return name }
        if name.hasPrefix("pid:") {
            guard let pid = UInt32(name.dropFirst("pid:".count)) else {
                throw Failure("\"\(name)\" is no process", .noSuchApplication)
            }
            return try call(ManagerMethod.getApplicationByPID) { try $0.append(pid) }
                .readObjectPath()
        }
        let all = try applications()
        let found = all.filter { $0.id == name }
        if let number = UInt32(name), number > 0 {
            // An id may be made of digits. Who takes one for another application's number would hit the wrong one.
            let path = BusNames.path(ofApplication: number)
            let others = found.filter { $0.number != number }
            if let meant = all.first(where: { $0.number == number }) {
                try refuse(name, as: "application \(meant.number) (\(meant.id), \(path))", or: others)
            }
            if others.isEmpty { return path }
        }
        guard let first = found.first else { throw Failure("no application \"\(name)\"", .noSuchApplication) }
        guard found.count == 1 else {
            let list = found.map { "\($0.number) (pid \($0.pid))" }.joined(separator: ", ")
            throw Failure("\"\(name)\" is several applications: \(list); name one by its number")
        }
        return first.path
    }

    /// The process that a user means: a PID, or an application's main process.
    func process(of name: String) throws -> UInt32 {
        if let pid = UInt32(name) {
            let others = try applications().filter { $0.id == name && $0.pid != pid }
            try refuse(name, as: "process \(pid) (pid:\(pid))", or: others)
            return pid
        }
        guard
            case .uint32(let pid)? = try properties(of: try path(of: name))[ApplicationProperty.pid.rawValue]
        else {
            throw Failure("\"\(name)\" has no process", .noSuchApplication)
        }
        return pid
    }

    /// A number that is an id as well names nothing.
    private func refuse(_ name: String, as number: String, or others: [Row]) throws {
        if others.isEmpty { return }
        let list = others.map { "application \($0.number) with that id (pid \($0.pid), \($0.path))" }
        throw Failure(
            "\"\(name)\" is ambiguous: \(number) or \(list.joined(separator: " or ")); "
                + "name it by its object path or as pid:PID", .ambiguous)
    }

    func properties(of path: String, _ interface: String = BusNames.application) throws -> [String: Variant] {
        let reply = try call(path, BusNames.properties, "GetAll") { try $0.append(interface) }
        return Dictionary(try reply.readDictionary().map { ($0.key, $0.value) }) { $1 }
    }
}

extension BusFailure {
    /// What a person should read: the peer's message where there is one.
    var sentence: String { message ?? description }
}

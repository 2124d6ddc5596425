import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

/// The exit statuses.
enum Verdict: Int32 {
    case refused = 1
    /// An id that several applications have. It is not wrong usage: it depends on what is registered.
    case ambiguous = 2
    case noSuchApplication = 3
    case notRunning = 4
    /// The other machine is not reached, or the connection was lost before it answered.
    case unreachable = 5
    case loginRefused = 6
    /// No application continues activities of this type.
    case noReceiver = 7
    /// appstatectl or appstated is missing on the other machine, or does not know of activities.
    case tooOld = 8
    /// EX_USAGE of sysexits.h, as ArgumentParser has it.
    case usage = 64
}

/// Why something cannot be done, as a sentence for standard error, and the exit status.
struct Failure: Error {
    let sentence: String
    let verdict: Verdict

    init(_ sentence: String, _ verdict: Verdict = .refused) {
        self.sentence = sentence
        self.verdict = verdict
    }

    /// Any error from the bus is a refusal. ArgumentParser handles its own errors, so they are rethrown.
    init(_ error: any Error) throws {
        switch error {
        case let failure as Failure: self = failure
        case let failure as BusFailure: self.init(failure.sentence)
        default: throw error
        }
    }
}

/// The service on the bus, from the client's point of view.
final class Client {
    let bus: Bus
    /// The bus, in a sentence.
    private let place: String

    init(address: String?) throws {
        let named = address ?? Environment["DBUS_SYSTEM_BUS_ADDRESS"]
        place = named.map { "the bus at \"\($0)\"" } ?? "the system bus"
        do {
            if let address { bus = try Bus.open(address: address) } else { bus = try Bus.system() }
        } catch {
            // libsystemd skips an entry with an unknown transport, and then has no address left to connect to.
            if let address, error.errno == EINVAL || !address.contains(":") {
                throw ValidationError("\"\(address)\" is not a bus address.")
            }
            let reason = String(cString: strerror(error.errno))
            throw Self.closed(error, place) ?? Failure("\(place) cannot be reached: \(reason)", .notRunning)
        }
    }

    /// The daemon waits up to 30 s for a session agent before it answers.
    private static let patience: UInt64 = 60_000_000

    /// Calls a method. A refusal ends the program with the daemon's own message.
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
        do {
            let message = try bus.newCall(
                destination: BusNames.service, path: path, interface: interface, member: member)
            try body(message)
            return try bus.call(message, timeout: Self.patience)
        } catch let error as BusFailure {
            throw explained(error)
        }
    }

    /// The failure for a connection that was established and then lost.
    static func closed(_ error: BusFailure, _ place: String) -> Failure? {
        guard [ENOTCONN, ECONNRESET, EPIPE].contains(error.errno) else { return nil }
        return Failure("\(place) has closed the connection", .notRunning)
    }

    private func explained(_ error: BusFailure) -> Failure {
        if let closed = Self.closed(error, place) { return closed }
        switch error.name.flatMap(Absence.init(error:)) {
        case .notStartable:
            return Failure("appstated is not running; start it with: systemctl start appstated", .notRunning)
        case .notStarted:
            return Failure("appstated is not running, and cannot be started: \(error.sentence)", .notRunning)
        case nil: break
        }
        return switch error.name {
        case ErrorName.noSuchApplication.rawValue, ErrorName.noSuchProcess.rawValue:
            Failure(error.sentence, .noSuchApplication)
        case ErrorName.accessDenied.rawValue:
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

    /// Explains why an application is in its state.
    func explanation(of path: String) throws -> [(key: String, value: Variant)] {
        try call(ApplicationMethod.explain, at: path).readDictionary()
    }

    /// The object path of the application that a user means.
    func path(of name: String) throws -> String {
        if BusNames.applicationNumber(inPath: name) != nil { return name }
        if name.hasPrefix("pid:") {
            guard let pid = UInt32(name.dropFirst("pid:".count)) else {
                throw Failure("\"\(name)\" is not pid: followed by a process number", .usage)
            }
            return try call(ManagerMethod.getApplicationByPID) { try $0.append(pid) }
                .readObjectPath()
        }
        let all = try applications()
        // An application whose id is a number is named by its object path.
        if let number = UInt32(name) {
            guard let row = all.first(where: { $0.number == number }) else {
                throw Failure(
                    "no application \(number); name the application of process \(number) as pid:\(number)",
                    .noSuchApplication)
            }
            return row.path
        }
        let found = all.filter { $0.id == name }
        guard let first = found.first else { throw Failure("no application \"\(name)\"", .noSuchApplication) }
        guard found.count == 1 else {
            let list = found.map { "\($0.number) (pid \($0.pid))" }.joined(separator: ", ")
            throw Failure(
                "\"\(name)\" matches several applications: \(list); name one by its number", .ambiguous)
        }
        return first.path
    }

    /// The process that a user means: a PID, or an application's main process.
    func process(of name: String) throws -> UInt32 {
        if let pid = UInt32(name) {
            // The daemon takes 0 for no process.
            guard pid > 0 else { throw Failure("the number of a process must be above 0", .usage) }
            return pid
        }
        guard
            case .uint32(let pid)? = try properties(of: try path(of: name))[ApplicationProperty.pid.rawValue]
        else {
            throw Failure("\"\(name)\" has no process", .noSuchApplication)
        }
        return pid
    }

    func properties(of path: String, _ interface: String = BusNames.application) throws -> [String: Variant] {
        let reply = try call(path, BusNames.properties, "GetAll") { try $0.append(interface) }
        return Dictionary(try reply.readDictionary().map { ($0.key, $0.value) }) { $1 }
    }
}

extension BusFailure {
    /// The sentence for users: the message of the peer, if there is one.
    var sentence: String { message ?? description }
}

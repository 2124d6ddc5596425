import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct ShowActivity: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "activity",
        abstract: "Show what you are doing in the application in front, as it has announced it.",
        discussion: "With --json, the output is what appstatectl continue reads.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Argument(
        help: "The application. Default: the one in front.", completion: .applications)
    var app: String?

    func run() throws {
        let activity = try bus.connect().activity(of: app)
        if output.json { return Terminal.emit(activity.json) }
        Terminal.emit(Field.line("application", Line(activity.appID)))
        Terminal.emit(Field.line("type", Line(activity.type)))
        for (key, value) in activity.info.sorted(by: { $0.key < $1.key }) {
            Terminal.emit(Field.line(key, Line(value.words)))
        }
    }
}

struct Continue: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "continue",
        abstract: "Continue an activity here that appstatectl activity --json has printed.",
        discussion: """
            Reads the activity from standard input. It goes to an application that declares its type: with \
            X-AppState-ActivityTypes= in its desktop entry, or with ActivityTypes= in one of your rules. The application \
            is started or resumed, and comes to the front. Prints its object path. An activity that was delivered \
            before is not delivered again.
            """)

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions

    func run() throws {
        var input = StandardInput()
        let activity = try Activity(line: try input.line())
        try bus.connect().receive(activity, from: &input).show(output)
    }
}

extension Client {
    /// What the user is doing in an application.
    ///
    /// - Parameter name: how the user names it; nil: the one in front.
    func activity(of name: String?) throws -> Activity {
        let path: String
        let found: (type: String, info: [String: Variant])
        if let name {
            path = try self.path(of: name)
            found = try Self.activity(try properties(of: path)[ApplicationProperty.userActivity.rawValue])
        } else {
            let front = try properties(of: BusNames.root, BusNames.manager)[
                ManagerProperty.frontActivity.rawValue]
            guard case .structure(let members)? = front, case .objectPath(let application)? = members.first
            else { throw Failure("appstated is older and knows of no activity", .tooOld) }
            guard application != "/" else {
                throw Failure("no registered application has the focus", .noSuchApplication)
            }
            path = application
            found = try Self.activity(.structure(Array(members.dropFirst())))
        }
        guard case .string(let id)? = try properties(of: path)[ApplicationProperty.id.rawValue] else {
            throw Failure("\(path) has no id")
        }
        guard !found.type.isEmpty else { throw Failure("\(id) has not announced what you are doing in it") }
        return Activity(appID: id, type: found.type, info: found.info)
    }

    private static func activity(_ value: Variant?) throws -> (String, [String: Variant]) {
        guard case .structure(let members)? = value, members.count == 2,
            case .string(let type) = members[0], case .dictionary(let info) = members[1]
        else { throw Failure("the activity has another type here") }
        return (type, info)
    }
}

/// Standard input: a line, and the bytes after it.
struct StandardInput {
    /// Much more than an activity can have: D-Bus limits its values to 64 KiB.
    private static let longestLine = 1 << 20
    private var buffered: ArraySlice<UInt8> = []

    /// The next line, without its end. If the input ends earlier, something was lost.
    mutating func line() throws -> [UInt8] {
        var line: [UInt8] = []
        while true {
            if let end = buffered.firstIndex(of: UInt8(ascii: "\n")) {
                line += buffered[..<end]
                buffered = buffered[(end + 1)...]
                return line
            }
            line += buffered
            guard line.count <= Self.longestLine else { throw Failure("the activity is too long") }
            guard try fill() else {
                throw Failure(line.isEmpty ? "there is no activity" : "the activity ends in the middle")
            }
        }
    }

    /// Passes on this many bytes, piece by piece.
    mutating func bytes(_ count: UInt64, _ take: (ArraySlice<UInt8>) throws -> Void) throws {
        var rest = count
        while rest > 0 {
            if buffered.isEmpty, try !fill() {
                throw Failure("the file ends in the middle: \(rest) bytes of \(count) are missing")
            }
            let piece = buffered.prefix(Int(clamping: rest))
            try take(piece)
            buffered = buffered.dropFirst(piece.count)
            rest -= UInt64(piece.count)
        }
    }

    /// - Returns: false at the end.
    private mutating func fill() throws -> Bool {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = read(STDIN_FILENO, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else {
                throw Failure("standard input cannot be read: \(String(cString: strerror(errno)))")
            }
            buffered = buffer[..<count]
            return count > 0
        }
    }
}

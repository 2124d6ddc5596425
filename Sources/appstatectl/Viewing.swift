import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux
import SessionRules

struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List applications and their states.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Option(help: "Only applications in this state.") var state: LifeCycleState?

    func run() throws {
        let all = try bus.connect().applications()
        let rows = all.filter { state == nil || $0.state == state?.rawValue }
        let table = Table(
            ["N", "APPLICATION", "PID", "USER", "STATE"],
            givingWay: [(1, 8), (3, 4), (4, 6), (1, 4), (3, 1), (1, 2), (4, 3)])
        output.show(
            rows, asJSON: \.json, in: table,
            cells: {
                [
                    Line(String($0.number)), Line($0.id), Line(String($0.pid)), Line(userName($0.uid)),
                    Line(state: $0.state),
                ]
            }, ifNone: Self.nothing(all.isEmpty ? nil : state, isRoot: geteuid() == 0))
    }
}

extension List {
    /// What is said instead of an empty table.
    ///
    /// - Parameter state: the state that none of the registered applications is in; nil: there are none at all.
    static func nothing(_ state: LifeCycleState?, isRoot: Bool) -> String {
        // Other users' applications do not exist for a user who may not see them.
        let whose = isRoot ? "" : " that you may see"
        guard let state else { return "No applications are registered\(whose)." }
        return "No application\(whose) is in the state \(state.rawValue)."
    }
}

struct Show: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Show the properties of an application.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Argument(help: "The application.", completion: .applications) var app: String

    func run() throws {
        let client = try bus.connect()
        let path = try client.path(of: app)
        let properties = try client.properties(of: path)
        if output.json {
            let members = properties.sorted { $0.key < $1.key }.map { ($0.key, JSON($0.value)) }
            Terminal.emit(JSON.object([("path", .string(path))] + members))
            return
        }
        let order: [ApplicationProperty] = [
            .id, .state, .stateTimestamp, .launching, .terminating, .pid, .uid, .session, .unit, .adopted,
            .focused, .visible, .minimized, .suspension, .suspensionDeadline, .suspendHolds, .objections,
            .inhibitors, .backgroundModes, .backgroundTasks, .continuedTasks, .reclaimable, .reclaimRank,
            .unsavedChanges, .unresponsive, .protectedDataAvailable, .memoryUsage, .registeredTimestamp,
            .userActivity, .launchOptions,
        ]
        Terminal.emit(Line(path, .bold).fitted)
        for name in order {
            guard let value = properties[name.rawValue] else { continue }
            Terminal.emit(Field.line(name.rawValue, shown(name, value)))
        }
    }

    /// A background task: its number, its name and when its time is over.
    private static func words(ofTask task: Variant) -> String {
        guard case .structure(let parts) = task, parts.count == 3, case .uint64(let deadline) = parts[2]
        else {
            return task.words
        }
        let end = deadline == .never ? "no deadline" : "deadline in \(duration(until: deadline))"
        return "\(parts[0].words) \(parts[1].words), \(end)"
    }

    private func shown(_ name: ApplicationProperty, _ value: Variant) -> Line {
        switch (name, value) {
        case (.state, .string(let state)): Line(state: state)
        case (.uid, .uint32(let uid)): Line("\(uid) (\(userName(uid)))")
        case (.memoryUsage, .uint64(let bytes)): Line(memory(bytes))
        case (.stateTimestamp, .uint64(let time)), (.registeredTimestamp, .uint64(let time)):
            Line("\(duration(from: time, to: Clock.realMicroseconds)) ago")
        case (.suspensionDeadline, .uint64(let time)):
            Line(time == .max ? "–" : "in \(duration(until: time))")
        case (.backgroundTasks, .array(_, let tasks)) where !tasks.isEmpty:
            Line(tasks.map(Self.words(ofTask:)).joined(separator: "; "))
        case (.userActivity, .structure(let values)) where values.first == .string(""): Line("–")
        default: Line(value.words)
        }
    }
}

struct Explain: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Explain why an application is suspended or not: a sentence, then every fact behind it.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Argument(help: "The application.", completion: .applications) var app: String

    func run() throws {
        let client = try bus.connect()
        let path = try client.path(of: app)
        let entries = try client.explanation(of: path)
        if output.json {
            Terminal.emit(
                JSON.object([("path", .string(path))] + entries.map { ($0.key, JSON($0.value)) }))
            return
        }
        // What the rules of other users say is theirs.
        let uid = try client.properties(of: path)[ApplicationProperty.uid.rawValue]
        let conclusion = Conclusion(entries, at: Clock.monotonicMicroseconds, nameOfUser: userName).sentence
        for line in Terminal.width.map({ conclusion.wrapped(to: $0) }) ?? [conclusion] {
            Terminal.emit(Line(line).fitted)
        }
        Terminal.emit(Line(path, .bold).fitted)
        for (key, value) in entries {
            switch (key, value) {
            case (_, .strings(let lines)) where !lines.isEmpty:
                for (index, line) in lines.enumerated() {
                    Terminal.emit(index == 0 ? Field.line(key, Line(line)) : Field.further(Line(line)))
                }
            case ("rule", .string(let names)):
                Terminal.emit(Field.line(key, Line(names)))
                guard uid == .uint32(getuid()) else { break }
                for setting in Rule.settings(ofRules: names) { Terminal.emit(Field.further(Line(setting))) }
            case ("state", .string(let state)), ("target", .string(let state)):
                Terminal.emit(Field.line(key, Line(state: state)))
            case (_, .uint64(let time)) where key.hasSuffix("deadline"):
                Terminal.emit(
                    Field.line(key, Line(time == .never ? "never" : "in \(duration(until: time))")))
            case ("state-since", .uint64(let time)):
                let span = duration(from: time, to: Clock.monotonicMicroseconds)
                Terminal.emit(Field.line(key, Line("\(span) ago")))
            case ("reclaim-bytes", .uint64(let bytes)):
                Terminal.emit(Field.line(key, Line(bytes == 0 ? "–" : memory(bytes))))
            default:
                Terminal.emit(Field.line(key, Line(value.words)))
            }
        }
    }
}

struct Status: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Show the status of the daemon.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions

    func run() throws {
        let client = try bus.connect()
        // The activity is private, and has a command of its own.
        let properties = try client.properties(of: BusNames.root, BusNames.manager)
            .filter { $0.key != ManagerProperty.frontActivity.rawValue }
        let count = try client.applications().count
        if output.json {
            let members = properties.sorted { $0.key < $1.key }.map { ($0.key, JSON($0.value)) }
            Terminal.emit(JSON.object(members + [("Applications", .unsigned(UInt64(count)))]))
            return
        }
        for (name, value) in properties.sorted(by: { $0.key < $1.key }) {
            Terminal.emit(Field.line(name, Line(value.words)))
        }
        Terminal.emit(Field.line("Applications", Line(String(count))))
    }
}

extension Client.Row {
    var json: JSON {
        .object([
            ("number", .unsigned(UInt64(number))), ("path", .string(path)), ("app_id", .string(id)),
            ("pid", .unsigned(UInt64(pid))), ("uid", .unsigned(UInt64(uid))), ("state", .string(state)),
        ])
    }
}

extension Variant {
    /// The value for users: lists with commas, yes and no.
    var words: String {
        switch self {
        case .bool(let value): value ? "yes" : "no"
        case .strings(let texts): texts.isEmpty ? "–" : texts.joined(separator: ", ")
        case .array(_, let values): values.isEmpty ? "–" : values.map(\.words).joined(separator: "; ")
        case .structure(let values): values.map(\.words).filter { !$0.isEmpty }.joined(separator: " ")
        case .dictionary(let entries):
            entries.isEmpty
                ? "–"
                : entries.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value.words)" }.joined(
                    separator: " ")
        case .string(let text), .objectPath(let text), .signature(let text): text.isEmpty ? "–" : text
        default: JSON(self).text
        }
    }
}

/// The name of a user, or the number if there is no name.
func userName(_ uid: UInt32) -> String {
    guard let entry = getpwuid(uid), let name = entry.pointee.pw_name else { return String(uid) }
    return String(cString: name)
}

/// An amount of memory: in MiB from 10 MiB on, in KiB from 1 KiB on.
func memory(_ bytes: UInt64) -> String {
    bytes < 1 << 10 ? "\(bytes) B" : bytes < 10 << 20 ? "\(bytes >> 10) KiB" : "\(bytes >> 20) MiB"
}

/// How long a moment of CLOCK_MONOTONIC is ahead, for users.
func duration(until time: UInt64) -> String { duration(from: Clock.monotonicMicroseconds, to: time) }

/// A span of time for users; 0 if it ends before it begins.
func duration(from start: UInt64, to end: UInt64) -> String {
    duration(of: end > start ? end - start : 0)
}

func duration(of microseconds: UInt64) -> String {
    let seconds = microseconds / 1_000_000
    switch seconds {
    case 0: return "\(microseconds / 1_000) ms"
    case 1..<10: return "\(seconds).\(microseconds / 100_000 % 10) s"
    case 10..<60: return "\(seconds) s"
    case 60..<3_600: return "\(seconds / 60) min \(seconds % 60) s"
    case 3_600..<86_400: return "\(seconds / 3_600) h \(seconds / 60 % 60) min"
    default: return "\(seconds / 86_400) d \(seconds / 3_600 % 24) h"
    }
}

/// A span of seconds in two units at most, for columns.
func span(of seconds: Int64) -> String {
    func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
    return switch seconds {
    case ..<60: "\(max(0, seconds))s"
    case ..<3_600: "\(seconds / 60)m\(two(seconds % 60))"
    case ..<86_400: "\(seconds / 3_600)h\(two(seconds / 60 % 60))"
    default: "\(seconds / 86_400)d\(two(seconds / 3_600 % 24))h"
    }
}

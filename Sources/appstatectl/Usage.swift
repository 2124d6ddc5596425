import AppStateContract
import ArgumentParser
import Linux
import Usage

struct UsageCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "usage",
        abstract: "Show how long your applications were in each state, what they used, and what suspension saved.",
        discussion:
            "The session agent records this if session.conf says Usage=yes; the file is yours alone.")

    @OptionGroup var output: OutputOptions
    @Option(help: "Of how many days, up to now.") var days = 7
    @Flag(help: "Delete what was recorded instead.") var forget = false
    @Argument(help: "Only of this application, by its id.", completion: .ownApplicationIDs) var id: String?

    func validate() throws {
        guard (1...7).contains(days) else { throw ValidationError("--days is a number from 1 to 7.") }
        if forget, output.json || id != nil {
            throw ValidationError("--forget deletes everything, and prints nothing.")
        }
    }

    func run() throws {
        if forget {
            guard let path = UsageLog.path else { return }
            return try WholeFile.remove(path)
        }
        let now = Int64(Clock.realMicroseconds / 1_000_000)
        let sums = try UsageLog.ofUser(at: now).sums(from: now - Int64(days) * 86_400, to: now)
            .filter { id == nil || $0.id == id }
        if output.json { return Terminal.emit(JSON.array(sums.map(\.json))) }
        if sums.isEmpty { return Terminal.warn("Nothing was recorded\(id.map { " of \($0)" } ?? "").") }
        var table = Table(
            [
                "APPLICATION", "SAVED", "ACTIVE", "INACTIVE", "BACKGROUND", "SUSPENDED", "PROCESSOR", "FREEZES",
                "SWAPPED", "RECLAIMED",
            ],
            givingWay: [(3, 6), (4, 6), (5, 7), (6, 6), (9, 8), (7, 4), (0, 12), (8, 7), (0, 6)])
        for sum in sums {
            func time(_ state: LifeCycleState) -> Line { Line(Self.span(sum.seconds[state] ?? 0)) }
            func kibibytes(_ count: Int64) -> Line {
                Line(count == 0 ? "–" : memory(UInt64(max(0, count)) << 10))
            }
            table.add([
                Line(sum.id), Line(sum.saved.map { Self.span($0 / 1_000) } ?? "–"), time(.active),
                time(.inactive), time(.background), time(.suspended), Line(Self.span(sum.allProcessor / 1_000)),
                Line(String(sum.freezes)), kibibytes(sum.swapped), kibibytes(sum.reclaimed),
            ])
        }
        table.emit()
        let sentence = Self.estimate(of: sums)
        for line in Terminal.width.map({ sentence.wrapped(to: $0) }) ?? [sentence] { Terminal.emit(Line(line)) }
    }

    /// How the column SAVED comes about.
    static func estimate(of sums: [UsageSum]) -> String {
        let frozen = sums.reduce(0) { $0 + $1.frozen }
        let percent = frozen == 0 ? 0 : sums.reduce(0) { $0 + $1.counted } * 100 / frozen
        return "SAVED is an estimate: the processor time that the application would have used while it was frozen, "
            + "at the rate of its time in the background. "
            + "The kernel has counted \(percent) % of the time frozen (cgroup.stat.local); the rest is the time in the "
            + "state suspended."
    }

    /// A time in two units at most, short.
    static func span(_ seconds: Int64) -> String {
        func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return switch seconds {
        case ..<60: "\(max(0, seconds))s"
        case ..<3_600: "\(seconds / 60)m\(two(seconds % 60))"
        case ..<86_400: "\(seconds / 3_600)h\(two(seconds / 60 % 60))"
        default: "\(seconds / 86_400)d\(two(seconds / 3_600 % 24))h"
        }
    }
}

extension UsageSum {
    fileprivate var json: JSON {
        let states = LifeCycleState.allCases.filter { $0 != .notRunning }
        func table(_ values: [LifeCycleState: Int64]) -> JSON {
            .object(states.map { ($0.rawValue, .signed(values[$0] ?? 0)) })
        }
        return .object([
            ("app_id", .string(id)), ("seconds", table(seconds)), ("processor_ms", table(processor)),
            ("freezes", .signed(Int64(freezes))), ("frozen_ms", .signed(frozen)),
            ("frozen_ms_counted_by_kernel", .signed(counted)), ("swapped_kib", .signed(swapped)),
            ("reclaimed_kib", .signed(reclaimed)), ("saved_processor_ms", saved.map { .signed($0) } ?? .null),
        ])
    }
}

extension UsageLog {
    /// What is recorded of the user's applications, up to now if the last line is recent.
    static func ofUser(at now: Int64) throws -> UsageLog {
        guard let path, let bytes = try UserFile.bytes(of: path) else {
            throw Failure("nothing is recorded; Usage=yes in [Session] of session.conf(5) begins it")
        }
        var log = UsageLog(bytes)
        if let last = log.runs.indices.last, (0...longestGap).contains(now - log.runs[last].end) {
            log.runs[last].end = now
        }
        return log
    }
}

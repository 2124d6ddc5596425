import AppStateContract
import ArgumentParser
import Linux
import Usage

struct UsageCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "usage",
        abstract: "Show how long your applications were in each state, and what suspension has saved.",
        discussion:
            "The session agent records this if session.conf says Usage=yes; the file is yours alone.")

    @OptionGroup var output: OutputOptions
    @Option(help: "Of how many days, up to now.") var days = 7
    @Flag(help: "Delete what was recorded instead.") var forget = false
    @Argument(help: "Only of this application, by its id.", completion: .ownApplicationIDs) var id: String?

    func validate() throws {
        guard (1...7).contains(days) else {
            throw ValidationError("--days is a number from 1 to 7, not \(days).")
        }
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
        func amount(_ kibibytes: Int64) -> Line {
            Line(kibibytes == 0 ? "–" : memory(UInt64(max(0, kibibytes)) << 10))
        }
        // A machine without swap has no use for the column.
        let (swaps, reclaims) = (sums.contains { $0.swapped > 0 }, sums.contains { $0.reclaimed > 0 })
        let states: [LifeCycleState] = [.active, .inactive, .background, .suspended]
        let table = Table(
            ["APPLICATION", "SAVED"] + states.map { $0.rawValue.uppercased() } + ["PROCESSOR", "FREEZES"]
                + (swaps ? ["SWAPPED"] : []) + (reclaims ? ["RECLAIMED"] : []),
            givingWay: [(3, 6), (4, 6), (5, 6), (6, 6), (7, 4), (0, 10)])
        output.show(
            sums, asJSON: \.json, in: table,
            cells: { sum in
                [Line(sum.id), Line(sum.saved.map { span(of: $0 / 1_000) } ?? "–")]
                    + states.map { Line(span(of: sum.seconds[$0] ?? 0)) }
                    + [Line(span(of: sum.allProcessor / 1_000)), Line(String(sum.freezes))]
                    + (swaps ? [amount(sum.swapped)] : []) + (reclaims ? [amount(sum.reclaimed)] : [])
            }, ifNone: "Nothing was recorded\(id.map { " of \($0)" } ?? "").")
        if output.json || sums.isEmpty { return }
        let sentence = Self.estimate(of: sums)
        for line in Terminal.width.map({ sentence.wrapped(to: $0) }) ?? [sentence] {
            Terminal.emit(Line(line))
        }
    }

    /// How the column SAVED comes about.
    static func estimate(of sums: [UsageSum]) -> String {
        let frozen = sums.reduce(0) { $0 + $1.frozen }
        let percent = frozen == 0 ? 0 : sums.reduce(0) { $0 + $1.counted } * 100 / frozen
        return
            "SAVED is an estimate: the processor time that the application would have used while it was frozen, "
            + "at the rate of its time in the background. "
            + "Of the time frozen, the kernel has counted \(percent) % (cgroup.stat.local); the rest is the time in "
            + "the state suspended."
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

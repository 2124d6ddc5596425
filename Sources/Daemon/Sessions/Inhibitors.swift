import AppStateBus
import LifeCycle

/// The processes that keep the machine from sleep, shutdown or idleness, or that delay its sleep: logind's
/// `ListInhibitors`.
final class Inhibitors {
    struct Inhibitor: Sendable, Equatable {
        /// The process that requested it. An inhibitor may outlive that process, so the number may belong to
        /// another user's process by now.
        let pid: Int32
        let user: UInt32
        /// As logind writes it: `sleep:idle`.
        let what: String
    }

    private struct Lists {
        /// In the mode `block`.
        var blocks: [Inhibitor] = []
        /// Those of sleep, in the mode `delay`.
        var sleepDelays: [Inhibitor] = []
        /// Whether the answer was short enough to be read.
        var isWhole = true
    }

    private let logind: BusPeer
    private let now: () -> Microseconds
    private var waiting: [(Lists) -> Void] = []
    private var question: Slot?
    private var last: (lists: Lists, time: Microseconds)?

    /// How long an answer is valid, because many applications may be examined together.
    private static let validity: Microseconds = 1_000_000
    /// A logind that takes longer counts as having no inhibitors.
    private static let patience: Microseconds = 1_000_000
    /// The most inhibitors of one user and one mode that are kept: logind has up to 8,192 (logind.conf(5), InhibitorsMax=).
    private static let mostOfUser = 64
    /// A longer answer is not read, because that would take more than 5 ms: any user can make logind write any text into
    /// it.
    private static let mostBytes = 64 << 10
    private static let sleep: Substring = "sleep"
    private static let kinds: Set<Substring> = [sleep, "shutdown", "idle"]

    init(logind: BusPeer, now: @escaping () -> Microseconds) {
        self.logind = logind
        self.now = now
    }

    /// The inhibitors that prevent sleep, shutdown or idleness, as they were within the last second; none if there is no
    /// logind, or it does not answer. nil: logind's answer was too long. `answer` is called once, later or at once.
    func read(_ answer: @escaping ([Inhibitor]?) -> Void) {
        if let last, logind.owner != nil, now() < last.time + Self.validity {
            return answer(last.lists.isWhole ? last.lists.blocks : nil)
        }
        ask { answer($0.isWhole ? $0.blocks : nil) }
    }

    /// The same for those that delay sleep, as they are now.
    func readSleepDelays(_ answer: @escaping ([Inhibitor]?) -> Void) {
        ask { answer($0.isWhole ? $0.sleepDelays : nil) }
    }

    private func ask(_ answer: @escaping (Lists) -> Void) {
        guard logind.owner != nil else { return answer(Lists()) }
        waiting.append(answer)
        if question != nil { return }
        do {
            question = try logind.call(
                Logind.path, Logind.manager, "ListInhibitors", timeout: Self.patience
            ) { [weak self] reply in
                self?.answered((try? Self.lists(in: reply)) ?? Lists())
            }
        } catch {
            answered(Lists())
        }
    }

    private func answered(_ lists: Lists) {
        question = nil
        last = (lists, now())
        let waiting = waiting
        self.waiting = []
        for answer in waiting { answer(lists) }
    }

    private struct Row {
        let what: String
        let mode: String
        let user: UInt32
        let pid: UInt32

        var kinds: [Substring] { what.split(separator: ":") }
    }

    /// `a(ssssuu)`: what, who, why, mode, user, process.
    private static func lists(in reply: borrowing Message) throws(BusFailure) -> Lists {
        guard try reply.size(atMost: mostBytes) != nil else { return Lists(isWhole: false) }
        var rows: [Row] = []
        _ = try reply.enter(.array, "(ssssuu)")
        while try reply.enter(.struct, "ssssuu") {
            rows.append(try row(in: reply))
            try reply.exit()
        }
        return lists(of: rows)
    }

    private static func row(in reply: borrowing Message) throws(BusFailure) -> Row {
        let what = try reply.readString()
        _ = try reply.readString()
        _ = try reply.readString()
        let mode = try reply.readString()
        let user = try reply.readUInt32()
        return Row(what: what, mode: mode, user: user, pid: try reply.readUInt32())
    }

    /// An inhibitor that only delays is not among the blocks, because it prevents nothing.
    private static func lists(of rows: [Row]) -> Lists {
        Lists(
            blocks: first(of: rows) { $0.mode.hasPrefix("block") && !kinds.isDisjoint(with: $0.kinds) },
            sleepDelays: first(of: rows) { $0.mode == "delay" && $0.kinds.contains(sleep) })
    }

    private static func first(of rows: [Row], where isMeant: (Row) -> Bool) -> [Inhibitor] {
        var counts: [UInt32: Int] = [:]
        return rows.filter { row in
            guard isMeant(row) else { return false }
            counts[row.user, default: 0] += 1
            return counts[row.user, default: 0] <= mostOfUser
        }.map { Inhibitor(pid: Int32(truncatingIfNeeded: $0.pid), user: $0.user, what: $0.what) }
    }
}

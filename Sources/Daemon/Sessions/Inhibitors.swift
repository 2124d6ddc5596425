import AppStateBus
import LifeCycle

/// The processes that keep the machine from sleep, shutdown or idleness: logind's `ListInhibitors`.
final class Inhibitors {
    struct Inhibitor: Sendable, Equatable {
        /// The process that requested it. An inhibitor may outlive that process, so the number may belong to
        /// another user's process by now.
        let pid: Int32
        let user: UInt32
        /// As logind writes it: `sleep:idle`.
        let what: String
    }

    private let logind: BusPeer
    private let now: () -> Microseconds
    private var waiting: [([Inhibitor]) -> Void] = []
    private var question: Slot?
    private var last: (list: [Inhibitor], time: Microseconds)?

    /// How long an answer is valid, because many applications may be examined together.
    private static let validity: Microseconds = 1_000_000
    /// A logind that takes longer counts as having no inhibitors.
    private static let patience: Microseconds = 1_000_000
    /// The most inhibitors of one user that are kept: logind has up to 8,192 (logind.conf(5), InhibitorsMax=).
    private static let mostOfUser = 64
    /// A longer answer is not read: any user can make logind write any text into it.
    private static let mostBytes = 256 << 10
    private static let kinds: Set<Substring> = ["sleep", "shutdown", "idle"]

    init(logind: BusPeer, now: @escaping () -> Microseconds) {
        self.logind = logind
        self.now = now
    }

    /// The present inhibitors; none if there is no logind, or it does not answer. `answer` is called once, later or at
    /// once.
    func read(_ answer: @escaping ([Inhibitor]) -> Void) {
        guard logind.owner != nil else { return answer([]) }
        if let last, now() < last.time + Self.validity { return answer(last.list) }
        waiting.append(answer)
        if question != nil { return }
        do {
            question = try logind.call(
                Logind.path, Logind.manager, "ListInhibitors", timeout: Self.patience
            ) { [weak self] reply in
                let rows = try? Self.rows(in: reply)
                self?.answered(rows.map { Self.inhibitors(of: $0) } ?? [])
            }
        } catch {
            answered([])
        }
    }

    private func answered(_ list: [Inhibitor]) {
        question = nil
        last = (list, now())
        let waiting = waiting
        self.waiting = []
        for answer in waiting { answer(list) }
    }

    private struct Row {
        let what: String
        let mode: String
        let user: UInt32
        let pid: UInt32
    }

    /// `a(ssssuu)`: what, who, why, mode, user, process.
    private static func rows(in reply: borrowing Message) throws(BusFailure) -> [Row] {
        guard try reply.size(atMost: mostBytes) != nil else { return [] }
        var rows: [Row] = []
        _ = try reply.enter(.array, "(ssssuu)")
        while try reply.enter(.struct, "ssssuu") {
            rows.append(try row(in: reply))
            try reply.exit()
        }
        return rows
    }

    private static func row(in reply: borrowing Message) throws(BusFailure) -> Row {
        let what = try reply.readString()
        _ = try reply.readString()
        _ = try reply.readString()
        let mode = try reply.readString()
        let user = try reply.readUInt32()
        return Row(what: what, mode: mode, user: user, pid: try reply.readUInt32())
    }

    /// An inhibitor that only delays is left out, because it prevents nothing.
    private static func inhibitors(of rows: [Row]) -> [Inhibitor] {
        var counts: [UInt32: Int] = [:]
        return rows.filter { row in
            guard row.mode.hasPrefix("block"), !kinds.isDisjoint(with: row.what.split(separator: ":"))
            else { return false }
            counts[row.user, default: 0] += 1
            return counts[row.user, default: 0] <= mostOfUser
        }.map { Inhibitor(pid: Int32(truncatingIfNeeded: $0.pid), user: $0.user, what: $0.what) }
    }
}

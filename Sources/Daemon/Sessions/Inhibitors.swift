import AppStateBus
import LifeCycle
import Linux

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
    private static let sleep: Substring = "sleep"
    private static let kinds: Set<Substring> = [sleep, "shutdown", "idle"]

    init(logind: BusPeer, now: @escaping () -> Microseconds) {
        self.logind = logind
        self.now = now
    }

    /// The inhibitors that prevent sleep, shutdown or idleness, as they were within the last second; none if there is no
    /// logind, or it does not answer. `answer` is called once, later or at once.
    func read(_ answer: @escaping ([Inhibitor]) -> Void) {
        if let last, logind.owner != nil, now() < last.time + Self.validity {
            return answer(last.lists.blocks)
        }
        ask { answer($0.blocks) }
    }

    /// The same for those that delay sleep, as they are now.
    func readSleepDelays(_ answer: @escaping ([Inhibitor]) -> Void) { ask { answer($0.sleepDelays) } }

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

    /// `a(ssssuu)`: what, who, why, mode, user, process. An inhibitor that only delays is not among the blocks, because it
    /// prevents nothing.
    private static func lists(in reply: borrowing Message) throws(BusFailure) -> Lists {
        var lists = Lists()
        _ = try reply.enter(.array, "(ssssuu)")
        while try reply.enter(.struct, "ssssuu") {
            let what = try reply.readString()
            try reply.skip("ss")
            let mode = try reply.readString()
            let user = try reply.readUInt32()
            let pid = Int32(truncatingIfNeeded: try reply.readUInt32())
            try reply.exit()
            let inhibitor = Inhibitor(pid: pid, user: user, what: what)
            let kinds = what.split(separator: ":")
            if mode.hasPrefix("block"), !Self.kinds.isDisjoint(with: kinds) { lists.blocks.append(inhibitor) }
            if mode == "delay", kinds.contains(sleep) { lists.sleepDelays.append(inhibitor) }
        }
        return lists
    }
}

import Glibc
import LifeCycle
import Testing

@testable import Daemon
@testable import Linux

/// Which application the daemon looks at next, and when, by a clock of the test's own.
@Suite("Waiting hints")
struct HintQueueTests {
    private static let user: UInt32 = 1000
    private static let other: UInt32 = 1001

    private func hint(_ signal: Int32, from sender: Int32 = 7) -> HintQueue.Hint {
        .signal(StopTrace.Hint(target: 1, signal: signal, sender: sender))
    }

    private func number(_ value: UInt32) -> ApplicationNumber { ApplicationNumber(value) }

    /// Looks at all applications that may be looked at now, each for `time`, and returns which they were.
    private func looks(
        _ queue: inout HintQueue, at now: inout Microseconds, taking time: Microseconds = 0, most: Int = .max
    ) -> [ApplicationNumber] {
        var found: [ApplicationNumber] = []
        while found.count < most, let next = queue.next(at: now) {
            found.append(next.number)
            now += time
            queue.spent(time, on: next.user, at: now)
        }
        return found
    }

    @Test("a queue that is never empty does not grow")
    func endless() {
        var queue = HintQueue()
        var now: Microseconds = 5
        for round in 0..<20_000 as Range<UInt32> {
            now += HintQueue.lookInterval
            queue.add(hint(SIGCONT), for: number(round % 3), of: Self.user, at: now)
            queue.add(hint(SIGCONT), for: number((round + 1) % 3), of: Self.user, at: now)
            _ = looks(&queue, at: &now, most: 1)
        }
        #expect(queue.lines[Self.user].map { $0.waiting.count } ?? 0 < 64)
    }

    @Test(
        "hints about one application lead to one look, for the last signal, and SIGSTOP outlasts other stops")
    func coalesced() {
        for (signals, last) in [
            ([SIGSTOP, SIGCONT], SIGCONT), ([SIGCONT, SIGSTOP], SIGSTOP), ([SIGSTOP, SIGTSTP], SIGSTOP),
            ([SIGTSTP, SIGSTOP], SIGSTOP), ([SIGSTOP, SIGCONT, SIGTTIN], SIGTTIN),
        ] {
            var queue = HintQueue()
            for signal in signals { queue.add(hint(signal), for: number(1), of: Self.user, at: 5) }
            #expect(queue.next(at: 5)?.hint.signal == last, "\(signals)")
            #expect(queue.next(at: 5) == nil)
            #expect(queue.isEmpty)
            #expect(queue.nextDue == nil)
        }
    }

    @Test("hints of a freeze and a signal lead to one look, for the signal")
    func freezes() {
        for hints in [[.freeze, hint(SIGSTOP)], [hint(SIGSTOP), .freeze]] as [[HintQueue.Hint]] {
            var queue = HintQueue()
            for hint in hints { queue.add(hint, for: number(1), of: Self.user, at: 5) }
            #expect(queue.next(at: 5)?.hint.signal == SIGSTOP)
            #expect(queue.isEmpty)
        }
    }

    @Test("an application that gets hint after hint is looked at less often, but is not forgotten")
    func paced() throws {
        var queue = HintQueue()
        var now: Microseconds = 1_000_000
        let begin = now
        var count = 0
        while now < begin + 1_000_000 {
            queue.add(hint(SIGCONT), for: number(1), of: Self.user, at: now)
            count += looks(&queue, at: &now).count
            now += 1_000
        }
        #expect(count <= HintQueue.looks + Int(1_000_000 / HintQueue.lookInterval) + 20)
        queue.add(hint(SIGSTOP), for: number(1), of: Self.user, at: now)
        if let due = queue.nextDue { now = max(now, due) }
        #expect(queue.next(at: now)?.hint.signal == SIGSTOP)
    }

    @Test("looks at one user's applications take at most a tenth of the time, and another user need not wait")
    func shared() throws {
        var queue = HintQueue()
        var now: Microseconds = 1_000_000
        let begin = now
        var work: Microseconds = 0
        let look: Microseconds = 500
        while now < begin + 10_000_000 {
            for value in 1...1_000 {
                queue.add(hint(SIGCONT), for: number(UInt32(value)), of: Self.user, at: now)
            }
            work += look * Microseconds(looks(&queue, at: &now, taking: look, most: 2).count)
            now += 1_000
        }
        #expect(work <= HintQueue.allowance + (now - begin) / HintQueue.share + 2 * look)
        #expect(queue.isOverdrawn(Self.user, at: now))
        #expect(!queue.isOverdrawn(Self.other, at: now))
        queue.add(hint(SIGSTOP), for: number(5_000), of: Self.other, at: now)
        #expect(queue.next(at: now)?.number == number(5_000))
    }

    @Test("users take turns, and each user's applications are looked at in the order of their hints")
    func turns() {
        var queue = HintQueue()
        var now: Microseconds = 1
        for value in 1...3 { queue.add(hint(SIGSTOP), for: number(UInt32(value)), of: Self.user, at: now) }
        for value in 11...12 { queue.add(hint(SIGSTOP), for: number(UInt32(value)), of: Self.other, at: now) }
        #expect(looks(&queue, at: &now).map(\.rawValue) == [1, 11, 2, 12, 3])
    }

    @Test("a forgotten application is not looked at")
    func forgotten() {
        var queue = HintQueue()
        var now: Microseconds = 1
        for value in 1...3 { queue.add(hint(SIGSTOP), for: number(UInt32(value)), of: Self.user, at: now) }
        queue.forget(number(2))
        #expect(looks(&queue, at: &now).map(\.rawValue) == [1, 3])
        #expect(queue.isEmpty)
    }
}

extension HintQueue.Hint {
    fileprivate var signal: Int32? {
        if case .signal(let hint) = self { return hint.signal }
        return nil
    }
}

import AppStateBus
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

/// Which user's work continues when, and for how long.
@Suite("Work done piece by piece")
struct RetriesTests {
    private final class Bench {
        let loop: EventLoop
        let share = WorkShare()
        let retries: Retries<Int>
        /// The work that was continued, in order.
        private(set) var pieces: [Int] = []
        private(set) var ended: [String] = []

        init() throws {
            loop = try EventLoop()
            retries = try Retries(loop: loop, now: { Clock.monotonicMicroseconds }, share: share)
        }

        /// Work of this many pieces, each of which takes a turn.
        func work(
            _ key: Int, of user: UInt32, pieces count: Int, for patience: Microseconds = .max / 2,
            atMost most: Int = .max
        ) {
            var left = count
            retries.work(on: key, of: user, for: patience, atMost: most) { [unowned self] in
                pieces.append(key)
                let end = Clock.monotonicMicroseconds + Turn.length
                while Clock.monotonicMicroseconds < end {}
                left -= 1
                guard left > 0 else {
                    ended.append("\(key) settled")
                    return .settled
                }
                return .soon
            } givenUp: { [unowned self] in
                ended.append("\(key) given up")
            }
        }

        func run(until isDone: () -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isDone() {
                guard ContinuousClock.now < deadline else { throw TestFailure("hung: \(pieces) \(ended)") }
                try loop.runOnce(timeout: 1_000_000)
            }
        }
    }

    @Test("users take turns, however much work one of them has")
    func turns() throws {
        let bench = try Bench()
        for key in 0..<50 { bench.work(key, of: 1, pieces: 1_000) }
        bench.work(100, of: 2, pieces: 10)
        try bench.run { !bench.ended.isEmpty }
        #expect(bench.ended == ["100 settled"])
        #expect(bench.pieces.count <= 22)
    }

    @Test("a user's oldest work is finished first, so that little is left half done")
    func depth() throws {
        let bench = try Bench()
        for key in 0..<5 { bench.work(key, of: 1, pieces: 4) }
        try bench.run { bench.ended.count == 5 }
        #expect(bench.pieces == (0..<5).flatMap { Array(repeating: $0, count: 4) })
    }

    @Test("endless work does not keep the same user's other work waiting for ever")
    func endless() throws {
        let bench = try Bench()
        bench.work(0, of: 1, pieces: .max)
        bench.work(1, of: 1, pieces: 2)
        try bench.run { !bench.ended.isEmpty }
        #expect(bench.ended == ["1 settled"])
    }

    @Test("the time limit does not apply while work is being done, but the limit on pieces does")
    func patience() throws {
        let bench = try Bench()
        bench.work(0, of: 1, pieces: 20, for: 3 * Turn.length)
        bench.work(1, of: 2, pieces: 20, atMost: 10)
        try bench.run { bench.ended.count == 2 }
        #expect(Set(bench.ended) == ["0 settled", "1 given up"])
    }

    @Test("work that waits is given up when its time limit is over")
    func waiting() throws {
        let bench = try Bench()
        var ended = false
        bench.retries.work(on: 0, of: 1, for: 2_000) {
            .later
        } givenUp: {
            ended = true
        }
        try bench.run { ended }
        #expect(bench.retries.isEmpty)
    }

    @Test("one user's work takes a fifth of the time in the long run")
    func share() throws {
        let bench = try Bench()
        bench.work(0, of: 1, pieces: .max)
        // First the allowance is used up, and what a pause of this thread has added to it.
        var begin = Clock.monotonicMicroseconds
        try bench.run {
            begin = Clock.monotonicMicroseconds
            return bench.share.due(of: 1) > begin
        }
        let count = bench.pieces.count
        try bench.run { bench.pieces.count >= count + 400 }
        #expect(Clock.monotonicMicroseconds - begin >= 400 * Turn.length * 3)
    }
}

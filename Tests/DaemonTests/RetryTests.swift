import AppStateBus
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

@Suite("Attempts that are repeated")
struct RetryTests {
    /// A clock that is at each due time when its timer fires.
    private final class Bench {
        let loop: EventLoop
        private(set) var now: Microseconds
        private(set) var retry: Retry<Int>?
        private(set) var story: [String] = []
        /// The time of each attempt since the beginning.
        private(set) var times: [Microseconds] = []
        private let begin: Microseconds

        init() throws {
            loop = try EventLoop()
            begin = Clock.monotonicMicroseconds
            now = begin
            retry = try Retry(loop: loop) { [unowned self] in
                now = max(now, Clock.monotonicMicroseconds)
                return now
            }
        }

        /// Attempts that succeed with the one of this number.
        func schedule(_ key: Int, for span: Microseconds = .max / 2, successes number: Int) {
            var left = number
            retry?.schedule(key, for: span) { [unowned self] in
                times.append(now - begin)
                left -= 1
                if left == 0 { story.append("\(key) settled") }
                return left == 0
            } giveUp: { [unowned self] in
                story.append("\(key) given up")
            }
        }

        func note(_ event: String) { story.append(event) }

        func run(until isDone: () -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isDone() {
                guard ContinuousClock.now < deadline else { throw TestFailure("hung: \(story)") }
                try loop.runOnce(timeout: 1_000_000)
            }
        }
    }

    @Test("it is tried again until it is settled, with longer and longer pauses")
    func pauses() throws {
        let bench = try Bench()
        bench.schedule(1, successes: 20)
        #expect(bench.retry?.contains(1) == true)
        try bench.run { !bench.story.isEmpty }
        #expect(bench.story == ["1 settled"])
        #expect(bench.retry?.contains(1) == false)
        // Pauses of the same length would have taken 2 ms.
        #expect(bench.times.count == 20)
        #expect(bench.times.last.map { $0 >= 10_000 } == true)
    }

    @Test("it is given up once its time is over, and after a last attempt")
    func givenUp() throws {
        let bench = try Bench()
        bench.schedule(1, for: 2_000, successes: .max)
        bench.schedule(2, successes: 3)
        try bench.run { bench.story.count == 2 }
        #expect(Set(bench.story) == ["1 given up", "2 settled"])
        #expect(bench.times.max().map { $0 >= 2_000 } == true)
        #expect(bench.retry?.contains(1) == false)
    }

    @Test("what is cancelled is neither tried nor given up")
    func cancelled() throws {
        let bench = try Bench()
        bench.schedule(1, for: 200, successes: .max)
        bench.retry?.cancel(1)
        bench.schedule(2, for: 1_000, successes: .max)
        try bench.run { !bench.story.isEmpty }
        #expect(bench.story == ["2 given up"])
    }

    @Test("an attempt may schedule another one under its own key, and cancel others that are due")
    func replaced() throws {
        let bench = try Bench()
        bench.retry?.schedule(1) {
            bench.note("first")
            bench.retry?.cancel(2)
            bench.schedule(1, successes: 2)
            return true
        }
        bench.schedule(2, for: 100, successes: .max)
        try bench.run { bench.story.contains("1 settled") }
        #expect(bench.story == ["first", "1 settled"])
    }
}

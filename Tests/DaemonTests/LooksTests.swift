import AppStateBus
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

/// In which order looks are made, and which callers get the answers.
@Suite("Looks from another thread")
struct LooksTests {
    /// Looks at numbers. The first look is held up until it is let go.
    private final class Bench {
        let loop: EventLoop
        let share = WorkShare()
        let looks: Looks<Int, Int>
        private let gate: PipeEnds
        /// What was looked at and what was answered, each in order.
        private(set) var begun: [Int] = []
        private(set) var answers: [String] = []

        init(patience: Microseconds = 300_000_000) throws {
            loop = try EventLoop()
            gate = try PipeEnds()
            looks = try Looks(
                loop: loop, name: "looks", patience: patience, now: { Clock.monotonicMicroseconds },
                share: share)
        }

        func holdUp(within span: Microseconds = .max) {
            let gate = gate.read
            ask(0, of: 0, within: span) {
                var byte: UInt8 = 0
                return Int(read(gate, &byte, 1)) - 1
            }
        }

        func letGo() {
            var byte: UInt8 = 1
            _ = write(gate.write, &byte, 1)
        }

        func ask(
            _ subject: Int, of user: UInt32, isUrgent: Bool = false, within span: Microseconds = .max,
            _ job: (@Sendable () -> Int)? = nil
        ) {
            looks.ask(subject, of: user, isUrgent: isUrgent, within: span) { [unowned self] in
                begun.append(subject)
                return job ?? { subject }
            } answer: { [unowned self] answer in
                note(subject, answer)
            }
        }

        func note(_ subject: Int, _ answer: Looks<Int, Int>.Answer) {
            switch answer {
            case .success(let found): answers.append("\(subject): \(found)")
            case .failure(let failure): answers.append("\(subject) \(failure)")
            }
        }

        func wait(for count: Int) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while answers.count < count {
                guard ContinuousClock.now < deadline else { throw TestFailure("only \(answers)") }
                try loop.runOnce(timeout: 100_000)
            }
        }
    }

    @Test("users take turns, each user's looks keep their order, and urgent ones come first")
    func turns() throws {
        let bench = try Bench()
        bench.holdUp()
        for subject in 10..<14 { bench.ask(subject, of: 1) }
        bench.ask(20, of: 2)
        bench.ask(21, of: 2)
        bench.ask(14, of: 1, isUrgent: true)
        bench.letGo()
        try bench.wait(for: 8)
        #expect(bench.begun == [0, 14, 20, 10, 21, 11, 12, 13])
        #expect(bench.answers == bench.begun.map { "\($0): \($0)" })
    }

    @Test("a look that takes too long keeps only its own user waiting")
    func hanging() throws {
        let bench = try Bench(patience: 1_000)
        bench.holdUp()
        bench.ask(1, of: 1)
        bench.ask(2, of: 0)
        try bench.wait(for: 1)
        #expect(bench.answers == ["1: 1"])
        bench.letGo()
        try bench.wait(for: 3)
        #expect(bench.answers == ["1: 1", "0: 0", "2: 2"])
    }

    @Test("when more looks hang than may, the others wait for one of them to end")
    func crowded() throws {
        let bench = try Bench(patience: 1_000)
        let gates = try (1...16).map { _ in try PipeEnds() }
        bench.holdUp()
        for (user, gate) in zip(1..., gates) {
            let end = gate.read
            bench.ask(user, of: UInt32(user)) {
                var byte: UInt8 = 0
                return Int(read(end, &byte, 1))
            }
        }
        while bench.begun.count < 17 { try bench.loop.runOnce(timeout: 100_000) }
        #expect(bench.looks.isCrowded)
        bench.ask(20, of: 20)
        bench.letGo()
        // User 0's look has ended. The last one that hangs takes its place, and user 20's look is made.
        try bench.wait(for: 2)
        #expect(bench.answers == ["0: 0", "20: 20"])
        for gate in gates { _ = write(gate.write, [1], 1) }
        try bench.wait(for: 18)
        #expect(!bench.looks.isCrowded)
    }

    @Test("a caller that waits for a look that hangs is answered in time, even if no other look follows")
    func hangingAlone() throws {
        let bench = try Bench(patience: 1_000)
        bench.holdUp(within: 2_000_000)
        try bench.wait(for: 1)
        #expect(bench.answers == ["0 could not be examined in time"])
        bench.letGo()
    }

    @Test("requests share a look that still waits, but a request during a look gets a new one")
    func together() throws {
        let bench = try Bench()
        bench.holdUp()
        for _ in 0..<3 { bench.ask(0, of: 0) }
        bench.ask(1, of: 1)
        bench.ask(1, of: 1, isUrgent: true)
        bench.letGo()
        try bench.wait(for: 6)
        #expect(bench.begun == [0, 0, 1])
        #expect(bench.answers.filter { $0 == "0: 0" }.count == 4)
        #expect(bench.answers.filter { $0 == "1: 1" }.count == 2)
    }

    @Test("a request that times out is answered once, and a look that no request waits for is not made")
    func late() throws {
        let bench = try Bench()
        bench.holdUp()
        bench.ask(1, of: 1, within: 0)
        bench.ask(2, of: 1, within: 0)
        bench.ask(2, of: 1)
        try bench.wait(for: 2)
        #expect(
            Set(bench.answers) == ["1 could not be examined in time", "2 could not be examined in time"])
        bench.letGo()
        try bench.wait(for: 4)
        #expect(bench.begun == [0, 2])
        #expect(bench.answers.dropFirst(2) == ["0: 0", "2: 2"])
    }

    @Test(
        "a look's processor time is charged to its user, whose looks wait once the share is used up")
    func charged() throws {
        // A pause of this thread may make up for the debt before the looks are asked for.
        for _ in 0..<20 {
            let bench = try Bench()
            let begin = Clock.monotonicMicroseconds
            bench.share.charge(WorkShare.allowance, to: 1, at: begin)
            bench.ask(10, of: 1) {
                let end = Clock.threadMicroseconds + 20_000
                while Clock.threadMicroseconds < end {}
                return 10
            }
            try bench.wait(for: 1)
            // A fifth of the time.
            #expect(bench.share.due(of: 1) >= begin + 5 * 20_000)
            while bench.share.due(of: 1) < Clock.monotonicMicroseconds + 3_000_000 {
                bench.share.charge(50_000, to: 1, at: Clock.monotonicMicroseconds)
            }
            bench.ask(11, of: 1)
            bench.ask(12, of: 1, isUrgent: true)
            bench.ask(20, of: 2)
            let isInDebt = bench.share.due(of: 1) > Clock.monotonicMicroseconds
            try bench.wait(for: 4)
            guard isInDebt else { continue }
            #expect(bench.begun == [10, 20, 12, 11])
            #expect(bench.share.due(of: 2) <= Clock.monotonicMicroseconds)
            return
        }
        Issue.record("the debt was over too early each time")
    }

    @Test("a subject that has ended when its turn comes delays no other")
    func gone() throws {
        let bench = try Bench()
        bench.holdUp()
        bench.looks.ask(1, of: 1, within: .max) {
            nil
        } answer: {
            bench.note(1, $0)
        }
        bench.ask(2, of: 1)
        bench.letGo()
        try bench.wait(for: 3)
        #expect(Set(bench.answers) == ["0: 0", "1 has ended", "2: 2"])
    }

    @Test("closing answers every request, and none is answered twice")
    func closed() throws {
        let bench = try Bench()
        bench.holdUp()
        bench.ask(1, of: 1)
        bench.looks.close()
        let why = "could not be examined: the daemon ends"
        #expect(Set(bench.answers) == ["0 \(why)", "1 \(why)"])
        bench.ask(2, of: 1)
        #expect(bench.answers.last == "2 \(why)")
        bench.letGo()
        try bench.loop.runOnce(timeout: nil)
        #expect(bench.answers.count == 3)
        #expect(bench.begun == [0])
    }
}

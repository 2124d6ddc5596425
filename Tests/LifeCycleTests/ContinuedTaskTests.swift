import AppStateContract
import Testing

@testable import LifeCycle

/// Background tasks that go on as long as they progress.
@Suite("Continued tasks")
struct ContinuedTaskTests {
    private static let second: Microseconds = 1_000_000

    private func working() throws -> Stage {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        #expect(try stage.begin() == .task(1))
        stage.forget()
        return stage
    }

    @Test("it begins in the foreground only")
    func foreground() throws {
        var stage = try Stage.launched()
        #expect(throws: Refusal.notInForeground(stage.number)) { try stage.begin() }
        #expect(stage.application.lastTask == 0)
        try stage.focus()
        #expect(try stage.begin() == .task(1))
    }

    @Test("it has no limit of time as long as its progress moves")
    func moves() throws {
        var stage = try working()
        try stage.minimize()
        for completed: UInt64 in 1...20 {
            stage.pass(29 * Self.second)
            try stage.perform(.setTaskProgress(stage.number, task: 1, completed: completed))
            #expect(stage.state == .background)
        }
        #expect(stage.application.tasks.first?.progress?.completed == 20)
        // What does not move does not count.
        for _ in 0..<3 {
            stage.pass(10 * Self.second)
            _ = try? stage.perform(.setTaskProgress(stage.number, task: 1, completed: 20))
        }
        #expect(stage.application.tasks.isEmpty)
        #expect(stage.heard(.delegate).last { $0.signal == .backgroundTaskWillExpire } != nil)
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test("a task that has none, and more than its total, are refused and change nothing")
    func refused() throws {
        var stage = try working()
        try stage.perform(.beginBackgroundTask(stage.number, name: "b", by: Stage.delegate))
        for (task, completed): (UInt64, UInt64) in [(2, 1), (3, 1), (1, 101)] {
            #expect(throws: Refusal.self) {
                try stage.perform(.setTaskProgress(stage.number, task: task, completed: completed))
            }
        }
        #expect(stage.application.tasks.first?.progress?.completed == 0)
    }

    @Test("its user cancels it, even in the foreground: it is warned, and ends")
    func cancelled() throws {
        var stage = try working()
        try stage.perform(.cancelTask(stage.number, task: 1))
        let warning = stage.heard(.delegate).compactMap { $0.until(.backgroundTaskWillExpire) }
        #expect(warning.map(\.serial) == [1] && warning.map(\.deadline) == [stage.now + 6 * Self.second])
        // Progress does not help it any more.
        try stage.perform(.setTaskProgress(stage.number, task: 1, completed: 50))
        stage.pass(6 * Self.second)
        #expect(stage.application.tasks.isEmpty && stage.state == .active)
        #expect(throws: Refusal.noSuchTask(1)) { try stage.perform(.cancelTask(stage.number, task: 1)) }
    }

    @Test("when memory is short, the one whose task has come least far is ended first, after all others")
    func pressure() throws {
        var candidates: [ReclaimPolicy.Candidate] = []
        for (number, progress) in [(1, 0.9), (2, 0.1), (3, 0.5)] {
            candidates.append(
                ReclaimPolicy.Candidate(
                    number: ApplicationNumber(UInt32(number)), user: 1000, rank: .continued, age: 1,
                    bytes: UInt64(number) << 30, progress: progress))
        }
        var order: [UInt32] = []
        let idle = ReclaimPolicy.Candidate(
            number: ApplicationNumber(4), user: 1000, rank: .background, age: 1, bytes: 1)
        candidates.append(idle)
        while let first = ReclaimPolicy.first(of: candidates, usage: [:]) {
            order.append(first.number.rawValue)
            candidates.removeAll { $0.number == first.number }
        }
        #expect(order == [4, 2, 3, 1])

        var stage = try working()
        try stage.minimize()
        #expect(stage.machine.reclaimRank(of: stage.number) == .continued)
        try stage.perform(.inhibit(stage.number, Application.Inhibitor(1, who: "player", why: "mixes it")))
        #expect(stage.machine.reclaimRank(of: stage.number) == nil)
        stage.handle(.uninhibited(stage.number, 1))
        #expect(stage.machine.reclaimRank(of: stage.number) == .continued)
        try stage.perform(.beginBackgroundTask(stage.number, name: "b", by: Stage.delegate))
        #expect(stage.machine.reclaimRank(of: stage.number) == nil)
    }
}

extension Stage {
    @discardableResult
    fileprivate mutating func begin() throws -> Answer {
        try perform(.beginContinuedTask(number, name: "export", title: "Film", total: 100, by: Self.delegate))
    }
}

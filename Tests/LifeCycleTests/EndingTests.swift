import AppStateContract
import Testing

@testable import LifeCycle

/// What the next launch learns about an end (§ 7).
@Suite("Endings")
struct EndingTests {
    private func ending(
        of stage: inout Stage, _ reason: ExitReason, status: Int32? = nil
    ) throws -> Ending {
        stage.forget()
        stage.handle(.exited(stage.process, reason, status: status))
        let endings = stage.effects.compactMap { effect -> Ending? in
            if case .ended(stage.number, let ending) = effect { ending } else { nil }
        }
        #expect(endings.count == 1)
        return try #require(endings.first)
    }

    @Test(
        "an ending records the state before it and how the process ended", arguments: LifeCycleState.allCases)
    func states(_ state: LifeCycleState) throws {
        var stage = try Stage.launched(delegate: false)
        if state == .notRunning {
            stage = Stage()
            try stage.register()
        }
        try stage.bring(to: state)
        let ending = try ending(of: &stage, .crashed, status: 11)
        #expect(ending == Ending(reason: .crashed, state: state, status: 11, dropsSavedState: false))
    }

    @Test("the daemon's decision to end an application overrides the exit reason of its process")
    func verdicts() throws {
        for (force, reason) in [(false, ExitReason.terminated), (true, .forceQuit)] {
            var stage = try Stage.launched()
            try stage.perform(.terminate(stage.number, force: force))
            let ending = try ending(of: &stage, .killed, status: 9)
            #expect(ending.reason == reason)
            #expect(ending.status == 9)
        }
    }

    @Test("saved state is dropped only by a force quit and by a crash of a launch that restored it")
    func dropped() throws {
        for isRestored in [false, true] {
            for isLaunching in [false, true] {
                for reason in ExitReason.allCases {
                    var stage = Stage()
                    try stage.register { $0.isRestored = isRestored }
                    if !isLaunching { try stage.perform(.finishLaunching(stage.number, by: Stage.delegate)) }
                    let ending = try ending(of: &stage, reason)
                    let isSpoilt = [.crashed, .unresponsive].contains(reason) && isLaunching && isRestored
                    #expect(ending.dropsSavedState == (isSpoilt || reason == .forceQuit), "\(reason)")
                }
            }
        }
    }

    @Test("an application that ended unobserved has ended in the same way for the next daemon")
    func unseen() throws {
        func ending(_ record: Record, _ reason: ExitReason, status: Int32?) throws -> Ending? {
            var next = Machine()
            let number = try next.restore(record)
            let process = try #require(next.applications[number]?.process)
            for case .ended(number, let ending) in next.handle(
                .exited(process, reason, status: status), at: 9)
            {
                return ending
            }
            return nil
        }
        var stage = Stage()
        try stage.register { $0.isRestored = true }
        let record = try #require(stage.machine.record(of: stage.number))
        let crashed = try ending(record, .crashed, status: 6)
        #expect(crashed == Ending(reason: .crashed, state: .notRunning, status: 6, dropsSavedState: true))
        try stage.perform(.terminate(stage.number, force: true))
        let killed = try #require(stage.machine.record(of: stage.number))
        #expect(try ending(killed, .unknown, status: nil)?.reason == .forceQuit)
    }

    @Test("unregistering an application, or replacing it by its own registration, is no ending")
    func noEnd() throws {
        var stage = try Stage.launched { $0.adopted = true }
        try stage.perform(.unregister(stage.number))
        #expect(!stage.effects.contains { if case .ended = $0 { true } else { false } })
    }
}

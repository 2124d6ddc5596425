import AppStateContract
import Testing

@testable import LifeCycle

/// Applications that do not answer what they have promised to answer.
@Suite("Watchdog")
struct WatchdogTests {
    private static let second: Microseconds = 1_000_000
    private static let id = "org.example.Editor"

    private func settings(_ change: (inout Settings) -> Void = { _ in }) -> Settings {
        var settings = Settings()
        change(&settings)
        return settings
    }

    private func terminating() -> Settings {
        settings {
            $0.applications[Self.id] = Settings.Override()
            $0.applications[Self.id]?.unresponsiveAction = .terminate
        }
    }

    /// What subscribers were told that it has not answered.
    private func told(_ stage: Stage) -> [UnresponsiveEvent] {
        stage.heard(.subscribers).compactMap { announcement in
            if case .event(let event) = announcement.payload { event } else { nil }
        }
    }

    private func isKilled(_ stage: Stage) -> Bool { stage.effects.contains(.killUnresponsive(stage.number)) }

    @Test("a launch that takes too long is told once, goes on, and is forgiven when it is done")
    func launch() throws {
        var stage = Stage()
        try stage.register()
        stage.pass(19 * Self.second)
        #expect(told(stage) == [])
        stage.pass(Self.second)
        #expect(told(stage) == [.launch])
        #expect(stage.heard(.delegate).allSatisfy { $0.signal != .didBecomeUnresponsive })
        #expect(stage.application.unresponsive == .launch)
        #expect(stage.state == .background)
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        #expect(stage.application.unresponsive == nil)
        #expect(!isKilled(stage))
    }

    @Test("LaunchTimeoutAction=terminate: it never counts as launched, and ends as unresponsive")
    func launchTerminated() throws {
        var stage = Stage(settings { $0.launchTimeoutAction = .terminate })
        try stage.register { $0.isRestored = true }
        stage.pass(20 * Self.second)
        #expect(told(stage) == [.launch])
        #expect(isKilled(stage))
        #expect(stage.state == .notRunning)
        stage.take(.exited(stage.process, .killed, status: 9))
        // With what it hung over it would hang again.
        #expect(
            stage.effects.contains(
                .ended(
                    stage.number,
                    Ending(reason: .unresponsive, state: .notRunning, status: 9, dropsSavedState: true))))
        #expect(stage.effects.contains(.removed(stage.number, .unresponsive)))
    }

    @Test("a debugger spares it, for as long as it takes")
    func spared() throws {
        var stage = Stage(settings { $0.launchTimeoutAction = .terminate })
        try stage.register()
        stage.pass(20 * Self.second)
        stage.forget()
        stage.take(.spared(stage.number, "a debugger is attached"))
        stage.pass(3_600 * Self.second)
        #expect(!isKilled(stage))
        #expect(!stage.application.isTerminating)
        #expect(stage.state == .notRunning)
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        #expect(stage.state == .background)
    }

    @Test("whoever does not acknowledge the background is told of, and suspended all the same")
    func background() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.minimize()
        stage.forget()
        stage.pass(5 * Self.second)
        #expect(told(stage) == [.background])
        #expect(stage.holds == [.policy])
        #expect(!isKilled(stage))
        // Once for each time that it stops answering.
        try stage.focus()
        try stage.minimize()
        stage.forget()
        stage.pass(5 * Self.second)
        #expect(told(stage) == [])
        #expect(stage.application.unresponsive == .background)
    }

    @Test("whoever acknowledges answers, however late")
    func acknowledged() throws {
        for isLate in [false, true] {
            var stage = try Stage.launched(suspension: .manual)
            try stage.focus()
            stage = try Stage.launched(suspension: .automatic)
            try stage.focus()
            try stage.minimize()
            let serials = stage.heard(.delegate).compactMap { $0.until(.didEnterBackground)?.serial }
            let serial = try #require(serials.last)
            stage.forget()
            if isLate { stage.pass(5 * Self.second) }
            try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
            #expect(told(stage) == (isLate ? [.background] : []))
            #expect(stage.application.unresponsive == nil)
        }
    }

    @Test("UnresponsiveAction=terminate kills it in the place of a suspension")
    func backgroundTerminated() throws {
        var stage = try Stage.launched(suspension: .automatic, terminating())
        try stage.focus()
        try stage.minimize()
        stage.forget()
        stage.pass(5 * Self.second)
        #expect(told(stage) == [.background])
        #expect(isKilled(stage))
        #expect(stage.holds.isEmpty)
        stage.take(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .unresponsive)))
    }

    @Test("Mode=observe says what it would do, and does nothing")
    func observed() throws {
        var settings = terminating()
        settings.mode = .observe
        var stage = try Stage.launched(suspension: .automatic, settings)
        try stage.focus()
        try stage.minimize()
        stage.forget()
        stage.pass(5 * Self.second)
        #expect(stage.effects.contains(.notice(stage.number, .wouldTerminate(.background))))
        #expect(!isKilled(stage))
        #expect(!stage.application.isTerminating)
    }

    @Test("whoever has to be killed at the end of its grace has not answered")
    func termination() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        stage.pass(5 * Self.second)
        #expect(told(stage) == [.termination])
        #expect(stage.effects.contains(.kill(stage.number)))
        stage.take(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .terminated)))
    }

    @Test("without a delegate nothing was promised; nor by one that has left, or has no time")
    func noPromise() throws {
        var alone = try Stage.launched(delegate: false, suspension: .automatic)
        try alone.perform(.terminate(alone.number, force: false))
        alone.pass(5 * Self.second)
        #expect(told(alone) == [])

        var left = Stage(terminating())
        try left.register()
        left.take(.disconnected(Stage.delegate))
        left.pass(20 * Self.second)
        #expect(told(left) == [])
        #expect(left.state == .background)

        var hasNoTime = try Stage.launched(suspension: .automatic, settings { $0.backgroundGrace = 0 })
        try hasNoTime.focus()
        try hasNoTime.minimize()
        hasNoTime.pass(0)
        #expect(hasNoTime.holds == [.policy])
        #expect(told(hasNoTime) == [])
    }

    @Test("the next daemon knows what was not answered")
    func recorded() throws {
        var stage = Stage()
        try stage.register()
        stage.pass(20 * Self.second)
        let record = try #require(stage.machine.record(of: stage.number))
        var next = Machine(settings: stage.machine.settings)
        let number = try next.restore(record)
        #expect(next.applications[number]?.unresponsive == .launch)
    }
}

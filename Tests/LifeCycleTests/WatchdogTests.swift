import AppStateContract
import Testing

@testable import LifeCycle

/// Applications that fail to answer in time.
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

    /// The unresponsive events that subscribers received.
    private func told(_ stage: Stage) -> [UnresponsiveEvent] {
        stage.heard(.subscribers).compactMap { announcement in
            if case .event(let event) = announcement.payload { event } else { nil }
        }
    }

    private func isKilled(_ stage: Stage) -> Bool { stage.effects.contains(.killUnresponsive(stage.number)) }

    @Test("a slow launch is reported once, continues, and counts as responsive again when it finishes")
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

    @Test("the next daemon kills an unresponsive application only where no debugger holds it up")
    func killedAfterRestart() throws {
        var stage = Stage(settings { $0.launchTimeoutAction = .terminate })
        try stage.register()
        stage.pass(20 * Self.second)
        #expect(isKilled(stage))
        var next = Machine(settings: stage.machine.settings)
        let number = try next.restore(#require(stage.machine.record(of: stage.number)))
        #expect(next.reassert(number, at: stage.now) == [.killUnresponsive(number)])
    }

    @Test("LaunchTimeoutAction=terminate: a slow launch never counts as launched and ends as unresponsive")
    func launchTerminated() throws {
        var stage = Stage(settings { $0.launchTimeoutAction = .terminate })
        try stage.register { $0.isRestored = true }
        stage.pass(20 * Self.second)
        #expect(told(stage) == [.launch])
        #expect(isKilled(stage))
        #expect(stage.state == .notRunning)
        stage.handle(.exited(stage.process, .killed, status: 9))
        // It would hang again with the saved state that it hung with.
        #expect(
            stage.effects.contains(
                .ended(
                    stage.number,
                    Ending(reason: .unresponsive, state: .notRunning, status: 9, dropsSavedState: true))))
        #expect(stage.effects.contains(.removed(stage.number, .unresponsive)))
    }

    @Test("a debugger exempts the launch from its timeout, for as long as it takes")
    func spared() throws {
        var stage = Stage(settings { $0.launchTimeoutAction = .terminate })
        try stage.register()
        stage.pass(20 * Self.second)
        stage.forget()
        stage.handle(.spared(stage.number, "a debugger is attached"))
        stage.pass(3_600 * Self.second)
        #expect(!isKilled(stage))
        #expect(!stage.application.isTerminating)
        #expect(stage.state == .notRunning)
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        #expect(stage.state == .background)
    }

    @Test("a missing acknowledgement of the background is reported, and the application is suspended anyway")
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

    @Test("an acknowledgement makes the application responsive, however late it is")
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

    @Test("UnresponsiveAction=terminate kills the application instead of suspending it")
    func backgroundTerminated() throws {
        var stage = try Stage.launched(suspension: .automatic, terminating())
        try stage.focus()
        try stage.minimize()
        stage.forget()
        stage.pass(5 * Self.second)
        #expect(told(stage) == [.background])
        #expect(isKilled(stage))
        #expect(stage.holds.isEmpty)
        stage.handle(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .unresponsive)))
    }

    @Test("a delegate need not answer what its predecessor was told")
    func successor() throws {
        var stage = try Stage.launched(suspension: .automatic, terminating())
        try stage.focus()
        try stage.minimize()
        try stage.perform(.becomeDelegate(stage.number, ":1.77"))
        stage.forget()
        var next = stage
        let record = stage.machine.record(of: stage.number)
        stage.pass(5 * Self.second)
        #expect(told(stage) == [] && !isKilled(stage) && stage.holds == [.policy])
        // Not even if the daemon is replaced meanwhile.
        next.machine = Machine(settings: stage.machine.settings)
        _ = try next.machine.restore(#require(record))
        _ = next.machine.reassert(next.number, at: next.now)
        next.pass(5 * Self.second)
        #expect(told(next) == [] && !isKilled(next) && next.holds == [.policy])
    }

    @Test("Mode=observe reports what it would do, and does nothing")
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

    @Test("an application that must be killed at the end of its grace period is unresponsive")
    func termination() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        stage.pass(5 * Self.second)
        #expect(told(stage) == [.termination])
        #expect(stage.effects.contains(.kill(stage.number)))
        stage.handle(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .terminated)))
    }

    @Test("an application without a delegate, or without time to answer, is never unresponsive")
    func noPromise() throws {
        var alone = try Stage.launched(delegate: false, suspension: .automatic)
        try alone.perform(.terminate(alone.number, force: false))
        alone.pass(5 * Self.second)
        #expect(told(alone) == [])

        var left = Stage(terminating())
        try left.register()
        left.handle(.disconnected(Stage.delegate))
        left.pass(20 * Self.second)
        #expect(told(left) == [])
        #expect(left.state == .background)

        var hasNoTime = try Stage.launched(suspension: .automatic, settings { $0.backgroundGrace = 0 })
        try hasNoTime.focus()
        try hasNoTime.minimize()
        hasNoTime.pass(0)
        #expect(hasNoTime.holds == [.policy])
        #expect(told(hasNoTime) == [])

        var endsAtOnce = try Stage.launched(settings { $0.terminateGrace = 0 })
        try endsAtOnce.perform(.terminate(endsAtOnce.number, force: false))
        #expect(endsAtOnce.effects.contains(.kill(endsAtOnce.number)))
        #expect(told(endsAtOnce) == [])

        var launchesAtOnce = Stage(
            settings {
                $0.launchTimeout = 0
                $0.launchTimeoutAction = .terminate
            })
        try launchesAtOnce.register()
        launchesAtOnce.pass(0)
        #expect(launchesAtOnce.state == .background)
        #expect(told(launchesAtOnce) == [] && !isKilled(launchesAtOnce))
    }

    @Test("an application that another process stops before the deadline of its end is not unresponsive")
    func stopped() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        stage.stopBySomebody()
        stage.pass(5 * Self.second)
        #expect(stage.effects.contains(.kill(stage.number)))
        #expect(told(stage) == [])
    }

    @Test("the record keeps what an application failed to answer")
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

import AppStateContract
import Testing

@testable import LifeCycle

/// Pings: an application in the foreground whose main loop does not run.
@Suite("A main loop that hangs")
struct MainLoopTests {
    private static let second: Microseconds = 1_000_000

    private func active(_ change: (inout Settings) -> Void = { _ in }) throws -> Stage {
        var settings = Settings()
        change(&settings)
        var stage = try Stage.launched(suspension: .automatic, settings)
        try stage.perform(.answerPings(stage.number, by: Stage.delegate))
        try stage.focus()
        return stage
    }

    /// The serials of the pings that the delegate was sent since `forget`.
    private func pings(_ stage: Stage) -> [UInt64] {
        stage.heard(.delegate).compactMap { $0.until(.ping)?.serial }
    }

    private func told(_ stage: Stage) -> [UnresponsiveEvent] {
        stage.heard(.subscribers).compactMap { if case .event(let event) = $0.payload { event } else { nil } }
    }

    private func asks(_ stage: Stage) -> Bool { stage.effects.contains(.confirmHang(stage.number)) }

    @Test("a ping goes out with what the delegate is told, after it, one at a time, at most every 10 s")
    func pinged() throws {
        var stage = try active()
        #expect(pings(stage).count == 1)
        #expect(stage.heard(.delegate).last?.signal == .ping)
        #expect(stage.heard(.subscribers).allSatisfy { $0.signal != .ping })
        let serial = try #require(pings(stage).last)
        // Not while one is not answered, and not at once after it.
        try stage.unfocus()
        try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
        try stage.focus()
        #expect(pings(stage).count == 1)
        // Nothing is sent for the ping's own sake, and no timer is needed for it.
        stage.pass(3_600 * Self.second)
        #expect(pings(stage).count == 1 && !asks(stage))
        #expect(stage.machine.nextDeadline == nil)
        try stage.unfocus()
        #expect(pings(stage).count == 2)
    }

    @Test("an application that has not said that it answers, or that is not in front, is not pinged")
    func notPinged() throws {
        var stage = try Stage.launched()
        try stage.focus()
        #expect(pings(stage).isEmpty)
        try stage.minimize()
        stage.forget()
        try stage.perform(.answerPings(stage.number, by: Stage.delegate))
        stage.handle(.timeChanged(.midnight))
        #expect(stage.words(.delegate) == ["SignificantTimeChange"])
        for span: Microseconds? in [nil, 0] {
            #expect(pings(try active { $0.unresponsive = span }).isEmpty)
        }
        #expect(throws: Refusal.notDelegate(":1.9", stage.number)) {
            try stage.perform(.answerPings(stage.number, by: ":1.9"))
        }
    }

    @Test("it is reported once, after UnresponsiveSec, and a late answer lifts that")
    func hangs() throws {
        var stage = try active()
        let serial = try #require(pings(stage).last)
        stage.pass(10 * Self.second - 1)
        #expect(!asks(stage))
        stage.pass(1)
        #expect(asks(stage) && told(stage).isEmpty)
        stage.handle(.hangs(stage.number))
        #expect(told(stage) == [.mainLoop])
        #expect(stage.application.unresponsive == .mainLoop)
        #expect(!stage.effects.contains(.killUnresponsive(stage.number)))
        stage.pass(60 * Self.second)
        #expect(told(stage) == [.mainLoop])
        try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
        #expect(stage.application.unresponsive == nil)
    }

    @Test("UnresponsiveAction=terminate ends it, unless a debugger is attached")
    func ended() throws {
        var stage = try active {
            $0.applications["org.example.Editor"] = Settings.Override()
            $0.applications["org.example.Editor"]?.unresponsiveAction = .terminate
        }
        var debugged = stage
        stage.pass(10 * Self.second)
        stage.handle(.hangs(stage.number))
        #expect(stage.effects.contains(.killUnresponsive(stage.number)))
        stage.handle(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .unresponsive)))
        // The shell answers nothing then.
        debugged.pass(3_600 * Self.second)
        #expect(told(debugged).isEmpty && debugged.application.unresponsive == nil)
        #expect(debugged.effects.count { $0 == .confirmHang(debugged.number) } == 1)
    }

    @Test("the time for the answer does not count in the background or while stopped, and begins anew then")
    func void() throws {
        for isStopped in [false, true] {
            var stage = try active()
            stage.pass(9 * Self.second)
            if isStopped { stage.stopBySomebody() } else { try stage.minimize() }
            stage.pass(100 * Self.second)
            #expect(!asks(stage))
            stage.settle()
            if isStopped { stage.handle(.continued(stage.number)) } else { try stage.minimize(false) }
            stage.settle()
            if !isStopped { try stage.focus() }
            stage.pass(10 * Self.second - 1)
            #expect(!asks(stage))
            stage.pass(1)
            #expect(asks(stage))
            #expect(pings(stage).count == 1)
        }
    }

    @Test("another delegate owes no answer, and must say itself that it answers; the next daemon knows")
    func successor() throws {
        var stage = try active()
        let record = try #require(stage.machine.record(of: stage.number))
        var next = stage
        next.machine = Machine(settings: stage.machine.settings)
        _ = try next.machine.restore(record)
        next.forget()
        try next.unfocus()
        #expect(pings(next).count == 1)

        try stage.perform(.becomeDelegate(stage.number, ":1.77"))
        stage.forget()
        try stage.unfocus()
        stage.pass(100 * Self.second)
        #expect(pings(stage).isEmpty && !asks(stage))
    }
}

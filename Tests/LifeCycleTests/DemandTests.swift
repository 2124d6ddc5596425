import AppStateContract
import Testing

@testable import LifeCycle

/// Another process needs an application that policy has suspended.
@Suite("Thaw on demand")
struct DemandTests {
    private static let second: Microseconds = 1_000_000

    /// An application that policy has suspended after its grace period of five seconds.
    private func suspended() throws -> Stage {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.pass(5 * Self.second)
        stage.settle()
        try #require(stage.state == .suspended)
        stage.forget()
        return stage
    }

    @Test("a needed application runs in the background for a grace period, then is suspended again")
    func needed() throws {
        var stage = try suspended()
        stage.handle(.needed(stage.number, "call by pid 7"))
        #expect(stage.effects.contains(.resume(stage.number)))
        #expect(stage.effects.contains(.notice(stage.number, .needed("call by pid 7"))))
        stage.settle()
        #expect(stage.state == .background && stage.holds.isEmpty)
        #expect(stage.application.demand == "call by pid 7")
        let edge = Announcement.Payload.edge(Edge(.suspended, .background), .demand)
        #expect(stage.heard(.subscribers).contains { $0.payload == edge })
        stage.pass(5 * Self.second - 1)
        #expect(stage.holds.isEmpty)
        stage.pass(1)
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test(
        "one that is needed for an answer is suspended as soon as it has answered, the first time after half a second"
    )
    func answered() throws {
        var stage = try suspended()
        stage.handle(.needed(stage.number, "call by bar", .answer))
        stage.settle()
        #expect(stage.state == .background && stage.application.graceDeadline == stage.now + 500_000)
        stage.pass(500_000)
        stage.settle()
        #expect(stage.state == .suspended)
        stage.pass(Self.second)
        stage.handle(.needed(stage.number, "call by bar", .answer))
        stage.settle()
        #expect(stage.application.graceDeadline == stage.now + 200_000)
        // While it is at work, it is asked again and again.
        stage.finding = .objection("demand")
        stage.pass(400_000)
        #expect(stage.application.graceDeadline == stage.now + 200_000 && stage.state == .background)
        stage.finding = .clear(isStopped: true)
        stage.pass(200_000)
        stage.settle()
        #expect(stage.state == .suspended)
        #expect(stage.application.demands.descriptions == ["call by bar, 2 times in 1 s"])
    }

    @Test("what a person does keeps its grace period, whatever else needs the application")
    func persons() throws {
        var stage = try suspended()
        stage.handle(.needed(stage.number, "call", .answer))
        stage.handle(.needed(stage.number, "start"))
        stage.settle()
        stage.handle(.needed(stage.number, "call", .answer))
        #expect(stage.application.graceDeadline == stage.now + 5 * Self.second)
        stage.pass(4 * Self.second + 900_000)
        // An answer is not cut off.
        stage.handle(.needed(stage.number, "call", .answer))
        #expect(stage.application.graceDeadline == stage.now + 200_000)
    }

    @Test(
        "a program that asks again and again does not keep an application awake, and is answered within four seconds",
        arguments: [20_000, 100_000, 500_000, 1_000_000, 2_000_000])
    func poller(every period: Microseconds) throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        var slept: Microseconds = 0
        var wait: Microseconds = 0
        for turn in 0..<(200 * Self.second / period) {
            stage.handle(.needed(stage.number, "call by bar", .answer))
            stage.settle()
            stage.pass(period)
            stage.settle()
            guard turn * period >= 80 * Self.second else { continue }
            wait = stage.state == .suspended ? wait + period : 0
            #expect(wait <= 4 * Self.second + period)
            if stage.state == .suspended { slept += period }
        }
        #expect(slept >= 80 * Self.second)
    }

    @Test("a demand that is postponed resumes the application later, and another program's does at once")
    func postponed() throws {
        var stage = try suspended()
        for turn in 0..<12 {
            stage.handle(.needed(stage.number, "call by bar", .answer))
            stage.settle()
            try #require(stage.state == .background)
            stage.pass(turn == 0 ? 500_000 : 200_000)
            stage.settle()
            try #require(stage.state == .suspended)
            stage.pass(2 * Self.second)
        }
        // It ran for 0.2 s, and is suspended for ten times as long.
        stage.handle(.needed(stage.number, "call by bar", .answer))
        stage.settle()
        stage.pass(200_000)
        stage.settle()
        stage.handle(.needed(stage.number, "call by bar", .answer))
        #expect(stage.state == .suspended && stage.machine.nextDeadline == stage.now + 2 * Self.second)
        var other = stage
        other.handle(.needed(stage.number, "call by dock", .answer))
        other.settle()
        #expect(other.state == .background)
        stage.pass(2 * Self.second)
        stage.settle()
        #expect(stage.state == .background)
    }

    @Test("a needed application serves until policy suspends it, or its user sees it")
    func serving() throws {
        var stage = try suspended()
        #expect(!stage.application.isServing)
        stage.handle(.needed(stage.number, "call"))
        stage.settle()
        #expect(stage.state == .background && stage.application.isServing)
        var seen = stage
        try seen.minimize(false)
        seen.settle()
        #expect(seen.state == .inactive && !seen.application.isServing)
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended && !stage.application.isServing)
    }

    @Test("a needed application that cannot be suspended serves for 30 s at most")
    func servingLimit() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.settle()
        stage.forget()
        stage.handle(.needed(stage.number, "call"))
        #expect(stage.application.isServing && stage.effects == [.resources(stage.number)])
        stage.finding = .objection("network")
        stage.forget()
        stage.pass(30 * Self.second - 1)
        #expect(stage.state == .background && stage.application.isServing)
        #expect(stage.effects.contains(.notice(stage.number, .objection("network"))))
        stage.pass(5 * Self.second)
        #expect(stage.state == .background && !stage.application.isServing)
        #expect(stage.effects.contains(.resources(stage.number)))
    }

    @Test("a needed application counts as answering for 30 s, also after a restart of the daemon")
    func answering() throws {
        var stage = try suspended()
        #expect(!stage.application.isAnswering(at: stage.now))
        stage.handle(.needed(stage.number, "start by pid 7"))
        stage.settle()
        #expect(stage.application.isAnswering(at: stage.now + 30 * Self.second - 1))
        #expect(!stage.application.isAnswering(at: stage.now + 30 * Self.second))
        let restored = try Application(stage.application.record())
        #expect(restored.isAnswering(at: stage.now + 30 * Self.second - 1))
        // Nothing is left of it once the application has been in front.
        var seen = stage
        try seen.minimize(false)
        try seen.focus()
        seen.settle()
        #expect(seen.state == .active && !seen.application.isAnswering(at: seen.now))
        // Another demand in the meantime does not extend this.
        stage.pass(Self.second)
        stage.handle(.needed(stage.number, "start by pid 8"))
        #expect(stage.application.isAnswering(at: stage.now + 29 * Self.second - 1))
        #expect(!stage.application.isAnswering(at: stage.now + 29 * Self.second))
    }

    @Test(
        "an application that is asked to end has as much time as Terminate gives, however short the grace period"
    )
    func asked() throws {
        var settings = Settings()
        settings.backgroundGrace = 0
        for isSignal in [true, false] {
            var stage = try Stage.launched(suspension: .automatic, settings)
            stage.pass(0)
            stage.settle()
            try #require(stage.state == .suspended)
            if isSignal {
                stage.handle(.needed(stage.number, "SIGTERM by pid 7", .end))
            } else {
                try stage.perform(
                    .demand(
                        ReportedProcess(
                            lineage: [stage.process], user: Stage.user, session: .user(Stage.user)), "close",
                        ReporterIdentity(connection: ":1.9", user: Stage.user, session: .user(Stage.user)),
                        .end))
            }
            stage.settle()
            #expect(stage.state == .background)
            stage.pass(5 * Self.second - 1)
            #expect(stage.state == .background && stage.holds.isEmpty)
            stage.pass(1)
            stage.settle()
            #expect(stage.state == .suspended)
        }
    }

    @Test(
        "a demand does not resume what a user's request or a foreign signal suspended",
        arguments: [false, true])
    func others(stranger: Bool) throws {
        var stage = try suspended()
        if stranger {
            stage.stopBySomebody()
        } else {
            try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        }
        stage.forget()
        stage.handle(.needed(stage.number, "call"))
        stage.settle()
        #expect(stage.state == .suspended)
        // Policy's hold may end, but the other hold remains.
        #expect(stage.holds.contains(stranger ? .signal : .request))
    }

    @Test(
        "a request to end resumes what users and root have suspended, but not what another process has stopped"
    )
    func asksToEnd() throws {
        for stranger in [false, true] {
            var stage = try Stage.launched(suspension: .automatic)
            try stage.perform(.suspend(stage.number, holder: "uid:0"))
            try stage.perform(.suspendUntilFocused(stage.number, holder: "uid:1000"))
            stage.settle()
            if stranger { stage.stopBySomebody() }
            stage.forget()
            stage.handle(.needed(stage.number, "SIGTERM by pid 7", .end))
            stage.settle()
            #expect(stage.holds == (stranger ? [.signal] : []))
            #expect(stage.state == (stranger ? .suspended : .background))
            #expect(stage.effects.contains(.resume(stage.number)))
            #expect(stage.effects.contains(.notice(stage.number, .needed("SIGTERM by pid 7"))))
        }
    }

    @Test("a demand before policy's stop takes effect cancels the stop", arguments: [false, true])
    func stopping(isOrdered: Bool) throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.finding = isOrdered ? .clear(isStopped: true) : nil
        stage.pass(5 * Self.second)
        #expect(stage.holds == [.policy] && stage.application.isPending == isOrdered)
        stage.handle(.needed(stage.number, "start"))
        stage.settle()
        #expect(stage.holds.isEmpty && stage.state == .background)
        #expect(stage.application.graceDeadline == stage.now + 5 * Self.second)
    }

    @Test("a demand while policy waits starts the grace period again; an acknowledgement still ends it")
    func waiting() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.pass(4 * Self.second)
        stage.handle(.needed(stage.number, "call"))
        #expect(stage.application.graceDeadline == stage.now + 5 * Self.second)
        #expect(stage.application.demand == "call")
        try stage.perform(.acknowledge(stage.number, serial: 1, by: Stage.delegate))
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test(
        "an application whose window is closed by another process runs and can handle it",
        arguments: [false, true])
    func closed(isWholeSet: Bool) throws {
        var stage = try Stage.launched(suspension: .automatic)
        var report = WindowReport(number: 7, process: stage.reported)
        report.visible = false
        try stage.perform(.updateWindow(report, stage.reporter))
        stage.pass(5 * Self.second)
        stage.settle()
        try #require(stage.state == .suspended)
        // A window that only has another number is not closed.
        report = WindowReport(number: 8, process: stage.reported)
        report.visible = false
        try stage.perform(.replaceWindows([report], stage.reporter))
        stage.settle()
        try #require(stage.state == .suspended)
        try stage.perform(
            isWholeSet ? .replaceWindows([], stage.reporter) : .removeWindow(8, stage.reporter))
        stage.settle()
        #expect(stage.state == .background)
        #expect(stage.application.demand == "window closed")
    }

    @Test("a reporter's demand counts only for its own user's applications, root's for all")
    func reporters() throws {
        var stage = try suspended()
        func demand(_ process: ProcessID, by user: UInt32) -> Request {
            .demand(
                ReportedProcess(
                    lineage: [ProcessID(pid: 200, startTime: 9), process], user: Stage.user,
                    session: .user(Stage.user)), "call",
                ReporterIdentity(connection: ":1.9", user: user, session: .user(user)))
        }
        #expect(throws: Refusal.noSuchApplication("of process 200")) {
            try stage.perform(demand(stage.process, by: 1001))
        }
        #expect(throws: Refusal.noSuchApplication("of process 200")) {
            try stage.perform(demand(ProcessID(pid: 300, startTime: 9), by: Stage.user))
        }
        #expect(stage.holds == [.policy])
        for user in [Stage.user, 0] {
            try stage.perform(demand(stage.process, by: user))
            stage.settle()
            #expect(stage.state == .background)
            stage.pass(5 * Self.second)
            stage.settle()
            #expect(stage.state == .suspended)
        }
    }
}

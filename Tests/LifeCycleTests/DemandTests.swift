import AppStateContract
import Testing

@testable import LifeCycle

/// Somebody needs an application that policy has suspended.
@Suite("Thaw on demand")
struct DemandTests {
    private static let second: Microseconds = 1_000_000

    /// One that policy has suspended after its grace of five seconds.
    private func suspended() throws -> Stage {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.pass(5 * Self.second)
        stage.settle()
        try #require(stage.state == .suspended)
        stage.forget()
        return stage
    }

    @Test("it runs in the background, has its grace again, and is suspended after that")
    func needed() throws {
        var stage = try suspended()
        stage.take(.needed(stage.number, "call by pid 7"))
        #expect(stage.effects.contains(.resume(stage.number, sparingMain: false)))
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

    @Test("for 30 s it may be at work on what it was needed for, after a restart of the daemon too")
    func answering() throws {
        var stage = try suspended()
        #expect(!stage.application.isAnswering(at: stage.now))
        stage.take(.needed(stage.number, "start by pid 7"))
        stage.settle()
        #expect(stage.application.isAnswering(at: stage.now + 30 * Self.second - 1))
        #expect(!stage.application.isAnswering(at: stage.now + 30 * Self.second))
        let restored = try Application(stage.application.record())
        #expect(restored.isAnswering(at: stage.now + 30 * Self.second - 1))
        // Another need meanwhile does not extend it.
        stage.pass(Self.second)
        stage.take(.needed(stage.number, "start by pid 8"))
        #expect(stage.application.isAnswering(at: stage.now + 29 * Self.second - 1))
        #expect(!stage.application.isAnswering(at: stage.now + 29 * Self.second))
    }

    @Test("however short the grace, there is time to answer")
    func impatient() throws {
        var settings = Settings()
        settings.backgroundGrace = 0
        var stage = try Stage.launched(suspension: .automatic, settings)
        stage.pass(0)
        stage.settle()
        try #require(stage.state == .suspended)
        stage.take(.needed(stage.number, "SIGTERM by pid 7"))
        stage.settle()
        #expect(stage.state == .background)
        stage.pass(Self.second - 1)
        #expect(stage.state == .background && stage.holds.isEmpty)
        stage.pass(1)
        stage.settle()
        #expect(stage.state == .suspended)
        // Otherwise it is as short as before.
        try stage.perform(.resume(stage.number, holder: "uid:1000"))
        stage.settle()
        stage.pass(0)
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test("what a person or a stranger has suspended stays so", arguments: [false, true])
    func others(stranger: Bool) throws {
        var stage = try suspended()
        if stranger {
            stage.stopBySomebody()
        } else {
            try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        }
        stage.forget()
        stage.take(.needed(stage.number, "call"))
        stage.settle()
        #expect(stage.state == .suspended)
        // Policy's part is over, as far as it is alone.
        #expect(stage.holds.contains(stranger ? .signal : .request))
    }

    @Test("before it is stopped it is not stopped at all", arguments: [false, true])
    func stopping(isOrdered: Bool) throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.finding = isOrdered ? .clear(stands: true) : nil
        stage.pass(5 * Self.second)
        #expect(stage.holds == [.policy] && stage.application.isPending == isOrdered)
        stage.take(.needed(stage.number, "start"))
        stage.settle()
        #expect(stage.holds.isEmpty && stage.state == .background)
        #expect(stage.application.graceDeadline == stage.now + 5 * Self.second)
    }

    @Test("who is about to be suspended has the grace anew; an acknowledgement still ends it")
    func waiting() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        stage.pass(4 * Self.second)
        stage.take(.needed(stage.number, "call"))
        #expect(stage.application.graceDeadline == stage.now + 5 * Self.second)
        #expect(stage.application.demand == "call")
        try stage.perform(.acknowledge(stage.number, serial: 1, by: Stage.delegate))
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test("whose window somebody else closes runs, and learns of it")
    func closed() throws {
        var stage = try Stage.launched(suspension: .automatic)
        var report = WindowReport(number: 7, process: stage.reported)
        report.visible = false
        try stage.perform(.updateWindow(report, stage.reporter))
        stage.pass(5 * Self.second)
        stage.settle()
        try #require(stage.state == .suspended)
        try stage.perform(.removeWindow(7, stage.reporter))
        stage.settle()
        #expect(stage.state == .background)
        #expect(stage.application.demand == "window closed")
    }

    @Test("what nobody is about to suspend is not changed, nor what is unknown")
    func running() throws {
        var stage = try Stage.launched(suspension: .manual)
        try stage.minimize()
        let before = stage.machine
        stage.take(.needed(stage.number, "call"))
        stage.take(.needed(ApplicationNumber(99), "call"))
        #expect(stage.machine == before)
    }

    @Test("a reporter's word counts for its own user's applications, and root's for all")
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

    @Test("who needed it is known to the next daemon")
    func record() throws {
        var stage = try suspended()
        stage.take(.needed(stage.number, "start by pid 7"))
        let record = try #require(stage.machine.record(of: stage.number))
        var next = Machine()
        _ = try next.restore(record)
        #expect(next.applications[stage.number]?.demand == "start by pid 7")
    }
}

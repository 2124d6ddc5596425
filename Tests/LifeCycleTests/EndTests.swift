import AppStateContract
import Testing

@testable import LifeCycle

/// All ways in which an application ends (§ 3, "orderly end"; § 7, exit reasons).
@Suite("Ends")
struct EndTests {
    private static let second: Microseconds = 1_000_000

    private func suspendedByPolicy() throws -> Stage {
        var stage = try Stage.launched(suspension: .automatic)
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended)
        stage.forget()
        return stage
    }

    private func suspendedOnRequest(
        delegate: Bool = true, _ settings: Settings = Settings()
    ) throws -> Stage {
        var stage = try Stage.launched(delegate: delegate, settings)
        try stage.perform(.suspend(stage.number, holder: "uid:0"))
        try stage.perform(
            .suspendUntilFocused(stage.number, holder: "uid:\(Stage.user)"))
        stage.settle()
        #expect(stage.state == .suspended && stage.holds == [.request, .toggle])
        stage.forget()
        return stage
    }

    @Test("a suspended application that is ended by force is killed without being continued first")
    func killedWhereItStands() throws {
        for var stage in [try suspendedByPolicy(), try suspendedOnRequest()] {
            try stage.perform(.terminate(stage.number, force: true))
            #expect(stage.effects.last == .kill(stage.number))
            #expect(stage.effects.dropLast().allSatisfy { if case .changed = $0 { true } else { false } })
            stage.handle(.exited(stage.process, .killed))
            #expect(stage.effects.contains(.removed(stage.number, .forceQuit)))
        }
    }

    @Test("a suspended application is continued to be ended, whoever has suspended it")
    func continuedToEnd() throws {
        for var stage in [try suspendedByPolicy(), try suspendedOnRequest()] {
            try stage.perform(.terminate(stage.number, force: false))
            #expect(stage.holds.isEmpty && stage.effects.contains(.resume(stage.number)))
            #expect(stage.words(.delegate).isEmpty, "it does not run yet")
            let deadline = stage.now + 5 * Self.second
            stage.settle()
            let serial = stage.application.lastSerial
            #expect(stage.heard(.delegate) == [.willTerminate(serial: serial, deadline: deadline)])
            // Its acknowledgement counts.
            try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
            #expect(stage.effects.contains(.requestExit(stage.number)))
            #expect(!stage.effects.contains(.kill(stage.number)))
            #expect(stage.state == .inactive || stage.state == .background)
            stage.pass(5 * Self.second)
            #expect(stage.effects.contains(.kill(stage.number)))
        }
        var alone = try suspendedOnRequest(delegate: false)
        try alone.perform(.terminate(alone.number, force: false))
        #expect(alone.effects.contains(.resume(alone.number)))
        #expect(alone.effects.contains(.requestExit(alone.number)))
    }

    @Test("an end leaves another process's stop, and SIGTERM waits beneath it until the deadline")
    func endedWhileStopped() throws {
        for terminateGrace: Microseconds? in [5 * Self.second, nil] {
            var settings = Settings()
            settings.terminateGrace = terminateGrace
            var stage = try suspendedOnRequest(settings)
            stage.stopBySomebody()
            stage.forget()
            try stage.perform(.terminate(stage.number, force: false))
            #expect(stage.state == .suspended && stage.holds == [.signal])
            #expect(stage.effects.contains(.resume(stage.number)))
            stage.pass(5 * Self.second)
            #expect(stage.effects.contains(.requestExit(stage.number)))
            #expect(stage.effects.contains(.kill(stage.number)) == (terminateGrace != nil))
        }
    }

    @Test("the next daemon repeats a kill that was requested and perhaps not carried out")
    func killedAfterRestart() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: true))
        let record = try #require(stage.machine.record(of: stage.number))
        var next = Machine(settings: stage.machine.settings)
        let number = try next.restore(record)
        #expect(next.reassert(number, at: stage.now) == [.kill(number)])

        // An announced end does not kill before its time.
        var announced = try Stage.launched()
        try announced.perform(.terminate(announced.number, force: false))
        let announcement = try #require(announced.machine.record(of: announced.number))
        var other = Machine(settings: announced.machine.settings)
        let restored = try other.restore(announcement)
        #expect(other.reassert(restored, at: announced.now) == [])
    }

    /// The next daemon's machine, with the record that the previous daemon wrote.
    private func next(after stage: Stage) throws -> (machine: Machine, effects: [Effect]) {
        var machine = Machine(settings: stage.machine.settings)
        let number = try machine.restore(#require(stage.machine.record(of: stage.number)))
        let effects = machine.reassert(number, at: stage.now)
        return (machine, effects)
    }

    @Test("the next daemon repeats a kill at the deadline that was perhaps not carried out")
    func deadlineBeforeRestart() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        stage.pass(5 * Self.second)
        #expect(stage.effects.contains(.kill(stage.number)))
        #expect(stage.application.killDeadline == nil)
        var (machine, effects) = try next(after: stage)
        effects += machine.handle(.timePassed, at: stage.now)
        #expect(effects.filter { $0 == .kill(stage.number) }.count == 1)
        #expect(!effects.contains(.requestExit(stage.number)))
    }

    @Test("the next daemon sends no second SIGTERM, and SIGKILL follows at its deadline")
    func exitRequestBeforeRestart() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        let deadline = try #require(stage.application.killDeadline)
        stage.pass(deadline - stage.now - 1)
        #expect(stage.effects.contains(.requestExit(stage.number)))
        var (machine, effects) = try next(after: stage)
        effects += machine.handle(.timePassed, at: deadline)
        #expect(effects.contains(.kill(stage.number)) && !effects.contains(.requestExit(stage.number)))
    }

    @Test("a stop voids the acknowledgement of WillTerminate; the deadlines keep running")
    func stoppedMeanwhile() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        let serial = stage.application.lastSerial
        stage.stopBySomebody()
        stage.handle(.continued(stage.number))
        try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
        #expect(!stage.effects.contains(.requestExit(stage.number)))
        stage.pass(2_500_000)
        #expect(stage.effects.contains(.requestExit(stage.number)))
        stage.stopBySomebody()
        stage.pass(2_500_000)
        #expect(stage.effects.contains(.kill(stage.number)))
    }

    @Test("without a deadline SIGTERM waits for the acknowledgement, and SIGKILL is never sent")
    func endless() throws {
        var settings = Settings()
        settings.terminateGrace = nil
        var stage = try Stage.launched(settings)
        try stage.perform(.terminate(stage.number, force: false))
        #expect(
            stage.heard(.delegate) == [.willTerminate(serial: stage.application.lastSerial, deadline: .never)]
        )
        stage.pass(3_600 * Self.second)
        #expect(!stage.effects.contains(.requestExit(stage.number)))
        try stage.perform(
            .acknowledge(stage.number, serial: stage.application.lastSerial, by: Stage.delegate))
        stage.pass(3_600 * Self.second)
        #expect(stage.effects.contains(.requestExit(stage.number)))
        #expect(!stage.effects.contains(.kill(stage.number)))
        // It has asked its user, who wants to go on. Another request asks it again.
        stage.forget()
        try stage.perform(.terminate(stage.number, force: false))
        #expect(
            stage.heard(.delegate) == [.willTerminate(serial: stage.application.lastSerial, deadline: .never)]
        )
        try stage.perform(
            .acknowledge(stage.number, serial: stage.application.lastSerial, by: Stage.delegate))
        #expect(stage.effects.contains(.requestExit(stage.number)))
    }

    @Test("an application that is about to be stopped is told of its end, and not stopped")
    func duringStop() throws {
        for isRequested in [false, true] {
            var stage = try Stage.launched(suspension: .automatic)
            stage.pass(5 * Self.second)
            #expect(stage.application.stop.enforcement == .stopping && !stage.application.isStopped)
            if isRequested { try stage.perform(.suspend(stage.number, holder: "uid:1000")) }
            stage.forget()
            try stage.perform(.terminate(stage.number, force: false))
            #expect(stage.effects.contains(.resume(stage.number)))
            #expect(!stage.effects.contains(.kill(stage.number)))
            #expect(stage.words(.delegate).isEmpty, "it may be stopped already")
            stage.settle()
            let (serial, deadline) = (stage.application.lastSerial, stage.now + 5 * Self.second)
            #expect(stage.heard(.delegate) == [.willTerminate(serial: serial, deadline: deadline)])
            try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
            #expect(stage.effects.contains(.requestExit(stage.number)))
            #expect(stage.state == .background && stage.holds.isEmpty)
        }
    }

    @Test("an ending application is not suspended, and its DidEnterBackground carries no deadline")
    func endingIsNotSuspended() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.perform(.terminate(stage.number, force: false))
        stage.forget()
        try stage.minimize()
        #expect(
            stage.heard(.delegate).contains { $0.until(.didEnterBackground)?.deadline == .never })
        stage.pass(5 * Self.second)
        #expect(stage.holds.isEmpty)
    }

    @Test("an end that is requested during the launch takes the same steps")
    func duringLaunch() throws {
        var stage = Stage()
        try stage.register()
        stage.forget()
        try stage.perform(.terminate(stage.number, force: false))
        #expect(stage.words(.delegate) == ["WillTerminate"])
        stage.pass(5 * Self.second)
        #expect(stage.effects.contains(.requestExit(stage.number)))
        #expect(stage.effects.contains(.kill(stage.number)))
        stage.handle(.exited(stage.process, .exited))
        #expect(stage.effects.suffix(2) == [.removed(stage.number, .terminated), .forget(stage.process)])
    }

    @Test(
        "an application that ends by itself keeps the exit reason of its process",
        arguments: [ExitReason.exited, .crashed, .killed, .unknown])
    func byItself(_ reason: ExitReason) throws {
        for state in [LifeCycleState.active, .inactive, .background, .suspended] {
            var stage = try Stage.launched()
            try stage.bring(to: state)
            stage.forget()
            stage.handle(.exited(stage.process, reason))
            // It does not know that it was suspended.
            let told = Application.asAnnounced(state).rawValue
            #expect(stage.words(.delegate) == ["\(told)→not-running"])
            #expect(stage.words(.subscribers) == ["\(state.rawValue)→not-running"])
            #expect(stage.effects.filter { $0 == .removed(stage.number, reason) }.count == 1)
            #expect(stage.effects.last == .forget(stage.process) || state == .active || state == .inactive)
            stage.forget()
            stage.handle(.exited(stage.process, reason))
            stage.handle(.stopped(stage.number, holder: nil))
            stage.handle(.continued(stage.number))
            stage.handle(.objected(stage.number, ""))
            stage.handle(.stopFailed(stage.number, ""))
            stage.handle(.contested(stage.number))
            #expect(stage.words(.all).isEmpty)
        }
    }

    @Test("the delegate is told the last edge, whoever it is, unless it is launching or is gone")
    func lastEdge() throws {
        var unregistered = try Stage.launched()
        try unregistered.focus()
        unregistered.forget()
        try unregistered.perform(.unregister(unregistered.number))
        let edge = Announcement.Payload.edge(Edge(.active, .notRunning), .request)
        #expect(unregistered.heard(.delegate).map(\.payload) == [edge])
        #expect(unregistered.words(.subscribers).isEmpty, "the process keeps running")

        var gone = try Stage.launched()
        gone.handle(.disconnected(Stage.delegate))
        gone.forget()
        gone.handle(.exited(gone.process, .exited))
        #expect(gone.words(.delegate).isEmpty)

        var launching = Stage()
        try launching.register()
        launching.forget()
        launching.handle(.exited(launching.process, .exited))
        #expect(launching.words(.delegate).isEmpty && launching.words(.subscribers).isEmpty)
    }

    @Test("unregistering continues what the daemon stopped, but not what another process stopped")
    func unregister() throws {
        var policy = try suspendedByPolicy()
        try policy.perform(.unregister(policy.number))
        #expect(policy.effects.first == .resume(policy.number))
        #expect(policy.effects.contains(.removed(policy.number, .unregistered)))
        #expect(policy.words(.delegate) == ["background→not-running"])

        var foreign = try Stage.launched()
        foreign.stopBySomebody()
        foreign.forget()
        try foreign.perform(.unregister(foreign.number))
        #expect(!foreign.effects.contains { if case .resume = $0 { true } else { false } })

        var both = try Stage.launched()
        try both.perform(.suspend(both.number, holder: "uid:0"))
        both.settle()
        both.stopBySomebody()
        both.forget()
        try both.perform(.unregister(both.number))
        #expect(both.effects.first == .resume(both.number))
        #expect(both.machine.applications.isEmpty && both.machine.deadlines.isEmpty)
    }
}

import AppStateContract
import Testing

@testable import LifeCycle

/// An application that stays suspended runs for a moment now and then (§ 5).
@Suite("Drains")
struct DrainTests {
    private static let second: Microseconds = 1_000_000

    /// An application that policy suspends 6 s after the clock's zero.
    private func suspended(
        _ settings: Settings = Settings(), _ change: (inout Registration) -> Void = { $0.adopted = true }
    ) throws -> Stage {
        var stage = try Stage.launched(delegate: false, suspension: .automatic, settings, change)
        try stage.minimize()
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended && stage.holds == [.policy])
        stage.forget()
        return stage
    }

    private func deadline(of scene: some Scene) -> Microseconds? { scene.machine.nextDeadline }

    private func isLook(_ effect: Effect) -> Bool {
        if case .checkUnread = effect { true } else { false }
    }

    @Test(
        "what policy has suspended runs for a second in every minute, and nobody asks what it may have to read"
    )
    func regular() throws {
        var stage = try suspended()
        for round: Microseconds in 1...3 {
            // 66 s, rounded up.
            let due = (10 + 60 * round) * Self.second
            #expect(deadline(of: stage) == due)
            stage.pass(due - stage.now - 1)
            #expect(!stage.effects.contains(.resume(stage.number)))
            stage.pass(1)
            #expect(stage.effects.contains(.resume(stage.number)))
            #expect(stage.application.isBeingDrained && stage.state == .suspended)
            stage.forget()
            stage.pass(Self.second)
            #expect(stage.effects.contains(.check(stage.number, isStopped: false)))
            #expect(stage.effects.contains(.stop(stage.number)))
            // The stop takes a moment.
            stage.now += Self.second / 2
            stage.handle(.stopped(stage.number, holder: nil))
            #expect(!stage.application.isBeingDrained && stage.holds == [.policy])
            #expect(stage.heard(.subscribers).isEmpty && !stage.effects.contains(where: isLook))
            stage.forget()
        }
    }

    @Test("a request to suspend ends a drain, and is carried out once the application is stopped")
    func request() throws {
        var stage = try suspended()
        stage.pass(64 * Self.second)
        #expect(stage.application.isBeingDrained)
        stage.forget()
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        #expect(stage.effects.contains(.stop(stage.number)))
        #expect(stage.application.isPending && stage.state == .suspended)
        stage.handle(.stopped(stage.number, holder: nil))
        #expect(!stage.application.isPending && !stage.application.isBeingDrained)
        #expect(stage.holds == [.policy, .request])
    }

    @Test("what may be a request to close a window is read in a drain, whoever has suspended the application")
    func perhapsClose() throws {
        var stage = try suspended()
        try stage.perform(.suspendUntilFocused(stage.number, holder: "uid:1000"))
        stage.handle(.needed(stage.number, "input"))
        #expect(!stage.application.isBeingDrained)
        stage.handle(.needed(stage.number, "message", .read))
        #expect(stage.application.isBeingDrained && stage.holds == [.policy, .toggle])
        stage.pass(Self.second)
        stage.handle(.stopped(stage.number, holder: nil))
        #expect(!stage.application.isBeingDrained && stage.state == .suspended)
    }

    @Test("a suspended application that registered itself runs only if something waits to be read")
    func registeredItself() throws {
        var stage = try suspended { $0.byItself = true }
        stage.pass(64 * Self.second)
        #expect(stage.effects == [.checkUnread(stage.number)])
        #expect(!stage.application.isBeingDrained)
        #expect(deadline(of: stage) == 130 * Self.second)
        stage.pass(60 * Self.second)
        #expect(stage.effects.count { $0 == .checkUnread(stage.number) } == 2)
        stage.forget()
        stage.handle(.unread(stage.number))
        #expect(stage.effects == [.resume(stage.number)] && stage.application.isBeingDrained)
        stage.pass(Self.second)
        stage.handle(.stopped(stage.number, holder: nil))
        #expect(deadline(of: stage) == 190 * Self.second)
        // An answer that comes too late changes nothing.
        try stage.focus()
        stage.settle()
        stage.forget()
        stage.handle(.unread(stage.number))
        #expect(stage.effects == [] && stage.state == .active)
    }

    @Test("so does an application that a person has suspended", arguments: [false, true])
    func person(isHeldByPolicy: Bool) throws {
        var stage = try isHeldByPolicy ? suspended() : Stage.launched(delegate: false) { $0.adopted = true }
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        stage.settle()
        stage.forget()
        stage.pass(75 * Self.second - stage.now)
        #expect(stage.effects == [.checkUnread(stage.number)])
        stage.handle(.unread(stage.number))
        #expect(stage.effects.last == .resume(stage.number))
        // Nobody checks what a person has suspended.
        stage.pass(Self.second)
        #expect(stage.effects.last == .stop(stage.number))
    }

    @Test("work that the check at the end of a drain finds keeps the application awake")
    func objection() throws {
        var stage = try suspended()
        stage.finding = .objection("network: it transfers 16384 bytes per second or more")
        stage.pass(65 * Self.second)
        #expect(stage.holds == [] && stage.application.objection?.hasPrefix("network") == true)
        #expect(stage.effects.contains(.resume(stage.number)))
        stage.settle()
        #expect(stage.state == .background)
        // Policy tries again after the grace period, as after any objection.
        stage.finding = .clear(isStopped: true)
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test(
        "due times are full multiples of 5 s, below a minute full seconds",
        arguments: [(1, 7), (12, 18), (59, 65), (60, 70), (61, 70), (600, 610)]
            as [(Microseconds, Microseconds)])
    func grid(_ every: Microseconds, _ due: Microseconds) throws {
        var settings = Settings()
        settings.drainEvery = every * Self.second
        let early = try suspended(settings)
        #expect(deadline(of: early) == due * Self.second)
        var stage = try Stage.launched(delegate: false, suspension: .automatic, settings) {
            $0.adopted = true
        }
        stage.now += 1
        try stage.minimize()
        stage.pass(5 * Self.second)
        stage.settle()
        let next = every < 60 ? due + 1 : due
        #expect(deadline(of: stage) == next * Self.second)
    }

    @Test("no drain runs while a memory episode is open: one that runs ends, and what is due is left out")
    func pressure() throws {
        var desk = PressureDesk {
            $0.drainEvery = 60 * Self.second
            $0.drainFor = 10 * Self.second
        }
        let number = try desk.held {
            $0.adopted = true
            $0.reclaimable = false
        }
        let other = try desk.held {
            $0.byItself = true
            $0.launchMode = .background
            $0.reclaimable = false
        }
        desk.pass(65 * Self.second - desk.now)
        #expect(desk.machine.applications[number]?.isBeingDrained == true)
        #expect(desk.effects.contains(.checkUnread(other)))
        desk.forget()
        // Less than twice the critical amount: the episode stays open.
        desk.runShort(to: 80 << 20)
        #expect(desk.machine.pressure.isEventOpen)
        #expect(desk.effects.contains(.stop(number)))
        desk.handle(.stopped(number, holder: nil))
        desk.handle(.unread(other))
        desk.pass(180 * Self.second)
        #expect(desk.machine.pressure.isEventOpen)
        #expect(!desk.effects.contains(.resume(number)) && !desk.effects.contains(.resume(other)))
        #expect(!desk.effects.contains(.checkUnread(other)))
        desk.calmDown()
        #expect(!desk.machine.pressure.isEventOpen)
        desk.pass(60 * Self.second)
        #expect(desk.effects.contains(.resume(number)) && desk.effects.contains(.checkUnread(other)))
    }
}

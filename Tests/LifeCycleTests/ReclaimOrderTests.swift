import AppStateContract
import Testing

@testable import LifeCycle

/// What can happen between the choice of a victim and its end, in every order.
@Suite("Reclaim, in an injected order")
struct ReclaimOrderTests {
    private static let second: Microseconds = 1_000_000

    /// Two suspended applications, the first of which has just been chosen.
    private func chosen(
        _ change: (inout Settings) -> Void = { _ in }
    ) throws -> (desk: PressureDesk, victim: ApplicationNumber, other: ApplicationNumber) {
        var desk = PressureDesk(change)
        let victim = try desk.held(60 << 20)
        let other = try desk.held(50 << 20)
        desk.forget()
        desk.runShort()
        #expect(desk.reclaimed == [victim])
        return (desk, victim, other)
    }

    @Test("a victim that exits by itself counts as reclaimed, and the next is chosen only if needed")
    func exitsByItself() throws {
        for isShort in [true, false] {
            var (desk, victim, other) = try chosen()
            if !isShort { desk.set(PressureDesk.ample) }
            try desk.exit(victim, .exited)
            #expect(desk.exitReason(victim) == .reclaimed)
            #expect(desk.reclaimed == (isShort ? [victim, other] : [victim]))
            desk.pass(Self.second)
            #expect(!desk.notices.contains { "\($0)".contains("\(victim)") })
        }
    }

    @Test("a victim that runs again is spared for this event, and the next one is chosen at once")
    func spared() throws {
        var (desk, victim, other) = try chosen()
        desk.handle(.spared(victim, "it runs again"))
        #expect(desk.notices == [.spared("it runs again")] && desk.reclaimed == [victim, other])
        #expect(desk.machine.applications[victim]?.isTerminating == false)
        desk.handle(.continued(victim))
        desk.desk.settle()
        try desk.exit(other)
        desk.pass(10 * Self.second)
        #expect(desk.machine.applications[victim]?.state == .suspended && desk.reclaimed == [victim, other])
        // Reported again, or for an application that is not being ended, this changes nothing.
        let before = desk.machine
        desk.handle(.spared(victim, "it runs again"))
        desk.handle(.spared(ApplicationNumber(99), "it runs again"))
        #expect(desk.machine == before)
        // In the next event it is a candidate like the others.
        desk.calmDown()
        desk.runShort()
        #expect(desk.reclaimed == [victim, other, victim])
    }

    @Test("a focus or a Resume between the choice and the shell's look spares the victim")
    func inTime() throws {
        for byFocus in [true, false] {
            var (desk, victim, other) = try chosen()
            if byFocus {
                try desk.focus(victim)
            } else {
                try desk.perform(.resume(victim, holder: "uid:1000"))
            }
            desk.handle(.spared(victim, "it runs again"))
            desk.handle(.continued(victim))
            #expect(desk.desk.state(victim) == (byFocus ? .active : .background))
            #expect(desk.reclaimed == [victim, other])
            desk.pass(20 * Self.second)
            #expect(desk.machine.applications[victim]?.isTerminating == false)
            #expect(desk.killed.isEmpty)
        }
    }

    @Test("an application that is drained is stopped when memory is short, and is no candidate until then")
    func drained() throws {
        var desk = PressureDesk {
            $0.drainEvery = 10 * Self.second
            $0.drainFor = Self.second
        }
        let number = try desk.held { $0.adopted = true }
        desk.pass(10 * Self.second)
        #expect(desk.effects.contains(.resume(number)))
        desk.runShort()
        #expect(desk.reclaimed.isEmpty && desk.effects.contains(.stop(number)))
        desk.handle(.stopped(number, holder: nil))
        desk.pass(100_000)
        #expect(desk.reclaimed == [number])
    }

    @Test("an unregistered victim is no longer awaited, and nothing is announced about it afterwards")
    func unregistered() throws {
        var (desk, victim, other) = try chosen()
        try desk.perform(.unregister(victim))
        #expect(desk.exitReason(victim) == .unregistered && desk.reclaimed == [victim, other])
        try desk.exit(other)
        try desk.exit(victim)
        desk.pass(5 * Self.second)
        #expect(desk.notices.isEmpty && desk.machine.pressure.victim == nil)
        #expect(desk.machine.pressure.excluded.isEmpty && desk.machine.pressure.sizes.isEmpty)

        // An unregistered application in the background is not killed either.
        var running = PressureDesk()
        let number = try running.background()
        let next = try running.background(10 << 20)
        running.runShort()
        try running.perform(.unregister(number))
        #expect(running.willReclaim == [number, next])
        running.pass(5 * Self.second)
        #expect(running.killed == [next])
    }

    @Test("an event ends when its only source vanishes, and the next event starts over")
    func vanished() throws {
        for dies in [true, false] {
            var (desk, victim, _) = try chosen { $0.pressure.killsPerEvent = 1 }
            desk.watch([])
            if dies { try desk.exit(victim) }
            desk.pass(10 * Self.second)
            #expect(desk.machine.memoryPressure == .normal && desk.isIdle)
            #expect(desk.machine.pressure.victim == nil)
            if !dies { try desk.exit(victim) }
            #expect(desk.exitReason(victim) == .reclaimed)
            var fresh = Pressure()
            fresh.levelChangedAt = desk.machine.pressure.levelChangedAt
            // A page-out is noted once for each suspension.
            fresh.pagedOut = desk.machine.pressure.pagedOut
            #expect(desk.machine.pressure == fresh)
            // The ends of the previous event do not count.
            desk.forget()
            desk.watch([PressureDesk.everybody])
            desk.runShort()
            #expect(desk.reclaimed.count == 1)
        }
    }

    @Test("a ForceQuit of the victim gives it its own exit reason, and the next end still waits for it")
    func forceQuit() throws {
        var (desk, victim, other) = try chosen()
        try desk.perform(.terminate(victim, force: true))
        #expect(desk.reclaimed == [victim] && desk.killed == [victim])
        try desk.exit(victim)
        #expect(desk.exitReason(victim) == .forceQuit && desk.reclaimed == [victim, other])
    }
}

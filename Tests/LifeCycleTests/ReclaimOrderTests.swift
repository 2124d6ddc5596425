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

    @Test(
        "a victim that was spared because it had exited keeps its exit reason, and the next is chosen"
    )
    func exitBeforeKill() throws {
        var (desk, victim, other) = try chosen()
        desk.take(.spared(victim, "it runs again"))
        #expect(desk.reclaimed == [victim, other])
        try desk.exit(victim, .exited)
        #expect(desk.exitReason(victim) == .exited)
        try desk.exit(other)
        #expect(desk.exitReason(other) == .reclaimed && desk.machine.pressure.excluded.isEmpty)
    }

    @Test("a victim that runs again is spared for this event, and the next one is chosen at once")
    func spared() throws {
        var (desk, victim, other) = try chosen()
        desk.take(.spared(victim, "it runs again"))
        #expect(desk.notices == [.spared("it runs again")] && desk.reclaimed == [victim, other])
        #expect(desk.machine.applications[victim]?.isTerminating == false)
        desk.take(.continued(victim))
        desk.desk.settle()
        try desk.exit(other)
        desk.pass(10 * Self.second)
        #expect(desk.machine.applications[victim]?.state == .suspended && desk.reclaimed == [victim, other])
        // Reported again, or for an application that is not being ended, this changes nothing.
        let before = desk.machine
        desk.take(.spared(victim, "it runs again"))
        desk.take(.spared(ApplicationNumber(99), "it runs again"))
        #expect(desk.machine == before)
        // In the next event it is a candidate like the others.
        desk.calmDown()
        desk.runShort()
        #expect(desk.reclaimed == [victim, other, victim])
    }

    @Test("spared applications do not count against the limit of ends per event")
    func sparedIsNoKill() throws {
        var (desk, victim, other) = try chosen { $0.pressure.killsPerEvent = 1 }
        desk.take(.spared(victim, "it runs again"))
        #expect(desk.reclaimed == [victim, other])
        try desk.exit(other)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [victim, other])
    }

    @Test(
        "a focus or a Resume after the choice does not undo the SIGKILL, and affects no other application"
    )
    func tooLate() throws {
        for byFocus in [true, false] {
            for isContinued in [true, false] {
                var (desk, victim, other) = try chosen()
                if byFocus {
                    try desk.focus(victim)
                } else {
                    try desk.perform(.resume(victim, holder: "uid:1000"))
                }
                if isContinued { desk.take(.continued(victim)) }
                #expect(desk.reclaimed == [victim] && desk.notices.isEmpty)
                try desk.exit(victim)
                #expect(desk.exitReason(victim) == .reclaimed && desk.reclaimed == [victim, other])
            }
        }
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
            desk.take(.spared(victim, "it runs again"))
            desk.take(.continued(victim))
            #expect(desk.desk.state(victim) == (byFocus ? .active : .background))
            #expect(desk.reclaimed == [victim, other])
            desk.pass(20 * Self.second)
            #expect(desk.machine.applications[victim]?.isTerminating == false)
            #expect(desk.killed.isEmpty)
        }
    }

    @Test("an application that is being resumed is no candidate, even before it is seen running")
    func resuming() throws {
        for byFocus in [true, false] {
            var desk = PressureDesk()
            let number = try desk.held()
            let other = try desk.held(10 << 20)
            if byFocus {
                try desk.focus(number)
            } else {
                try desk.perform(.resume(number, holder: "uid:1000"))
            }
            #expect(desk.desk.state(number) == .suspended)
            desk.runShort()
            #expect(desk.reclaimed == [other])
            try desk.exit(other)
            desk.pass(10 * Self.second)
            #expect(desk.reclaimed == [other] && desk.willReclaim.isEmpty)
        }
    }

    @Test("an application that is being suspended is not warned, and is ended once it is stopped")
    func suspending() throws {
        var desk = PressureDesk()
        let number = try desk.background()
        try desk.perform(.suspend(number, holder: "uid:1000"))
        desk.runShort()
        #expect(desk.willReclaim.isEmpty && desk.reclaimed.isEmpty)
        desk.take(.stopped(number, holder: nil))
        desk.pass(100_000)
        #expect(desk.reclaimed == [number] && desk.willReclaim.isEmpty)
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
        desk.take(.stopped(number, holder: nil))
        desk.pass(100_000)
        #expect(desk.reclaimed == [number])
    }

    @Test("the exit of another process with the same PID changes nothing")
    func pidReuse() throws {
        var (desk, victim, other) = try chosen()
        let process = try desk.process(victim).lineage[0]
        let later = ProcessID(pid: process.pid, startTime: process.startTime + 1)
        let before = desk.machine
        desk.forget()
        desk.take(.exited(later, .killed))
        #expect(desk.machine == before && desk.effects == [.forget(later)])
        // The process is registered while the victim is still dying, and has nothing to do with it.
        let number = try desk.desk.register(
            ReportedProcess(lineage: [later], user: Desk.user, session: .user(Desk.user)))
        try desk.exit(victim)
        #expect(desk.exitReason(victim) == .reclaimed && desk.reclaimed == [other])
        #expect(desk.desk.state(number) == .background)
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

    @Test("unregistering an application that is not the victim leaves nothing behind")
    func othersUnregistered() throws {
        var (desk, victim, other) = try chosen()
        desk.take(.spared(victim, "it runs again"))
        try desk.perform(.unregister(victim))
        #expect(
            desk.machine.pressure.excluded.isEmpty && desk.machine.pressure.sizes.keys.elementsEqual([other]))
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

    @Test("if one of two short sources vanishes, the victim is awaited and the next one is chosen")
    func oneVanished() throws {
        let slice = PressureSource(path: "/slice/1000", user: 1000)
        var desk = PressureDesk(sources: [PressureDesk.everybody, slice])
        let victim = try desk.held(60 << 20)
        let other = try desk.held(50 << 20)
        desk.runShort()
        #expect(desk.reclaimed == [victim])
        desk.watch([slice])
        desk.pass(100_000)
        #expect(desk.reclaimed == [victim] && desk.machine.memoryPressure == .critical)
        try desk.exit(victim)
        #expect(desk.reclaimed == [victim, other])
    }

    @Test("observe mode in mid-event ends only the victim already killed, and reports the next candidate")
    func observeMeanwhile() throws {
        var (desk, victim, other) = try chosen()
        // Policy's holds are released; this one stays.
        try desk.perform(.suspend(other, holder: "uid:0"))
        desk.configure { $0.mode = .observe }
        try desk.exit(victim)
        #expect(desk.exitReason(victim) == .reclaimed)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [victim] && desk.notices == [.wouldReclaim(50 << 20)])
        // The promised memory has not come: once enforced again, the application is ended.
        desk.configure { $0.mode = .enforce }
        desk.pass(Self.second)
        #expect(desk.reclaimed == [victim, other])
    }

    @Test("observe mode in mid-event cancels the announced end of a background application")
    func observeCallsOff() throws {
        var desk = PressureDesk()
        let number = try desk.background { $0.delegate = ":1.5" }
        try desk.perform(.finishLaunching(number, by: ":1.5"))
        desk.runShort()
        #expect(desk.willReclaim == [number])
        desk.configure { $0.mode = .observe }
        desk.pass(10 * Self.second)
        #expect(desk.killed.isEmpty && !desk.effects.contains(.requestExit(number)))
        #expect(desk.machine.applications[number]?.isTerminating == false)
        #expect(desk.machine.pressure.victim == nil)
    }

    @Test("an announced end is cancelled if the configuration makes the application not reclaimable")
    func exemptedMeanwhile() throws {
        var desk = PressureDesk()
        let number = try desk.background { $0.delegate = ":1.5" }
        try desk.perform(.finishLaunching(number, by: ":1.5"))
        desk.runShort()
        desk.configure {
            $0.applications["org.example.A"] = Settings.Override()
            $0.applications["org.example.A"]?.reclaimable = false
        }
        desk.pass(10 * Self.second)
        #expect(desk.killed.isEmpty && desk.willReclaim == [number])
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

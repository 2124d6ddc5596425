import AppStateContract
import Testing

@testable import LifeCycle

/// What comes between the choice of a victim and its end, in every order.
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

    @Test("one that exits by itself while it is chosen is gone, and the next is taken only if it must be")
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
        "one that the shell finds gone before its exit is told is spared, ends as it did, and the next is taken"
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

    @Test("one that was resumed while it was chosen is spared for this event, and the next is taken at once")
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
        // Told once more, or of one that is not being ended, it changes nothing.
        let before = desk.machine
        desk.take(.spared(victim, "it runs again"))
        desk.take(.spared(ApplicationNumber(99), "it runs again"))
        #expect(desk.machine == before)
        // In the next event it is one like the others.
        desk.calmDown()
        desk.runShort()
        #expect(desk.reclaimed == [victim, other, victim])
    }

    @Test("those who were spared do not count for what one event may cost")
    func sparedIsNoKill() throws {
        var (desk, victim, other) = try chosen { $0.pressure.killsPerEvent = 1 }
        desk.take(.spared(victim, "it runs again"))
        #expect(desk.reclaimed == [victim, other])
        try desk.exit(other)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [victim, other])
    }

    @Test(
        "a focus or a Resume between the choice and the exit does not undo the SIGKILL, and hurts nobody else"
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

    @Test("a focus or a Resume between the choice and the shell's look spares it")
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

    @Test("who is being resumed is no candidate, though it was not seen to run yet")
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

    @Test("who is just being suspended is told nothing: it is taken once it stands")
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

    @Test("who breathes is no candidate, and is one afterwards")
    func breathing() throws {
        var desk = PressureDesk {
            $0.drainEvery = 10 * Self.second
            $0.drainFor = Self.second
        }
        let number = try desk.held()
        desk.pass(10 * Self.second)
        #expect(desk.effects.contains(.breathe(number)))
        desk.runShort()
        #expect(desk.reclaimed.isEmpty)
        desk.pass(Self.second)
        desk.take(.stopped(number, holder: nil))
        desk.pass(100_000)
        #expect(desk.reclaimed == [number])
    }

    @Test("the exit of another process with the same pid changes nothing")
    func pidReuse() throws {
        var (desk, victim, other) = try chosen()
        let process = try desk.process(victim).lineage[0]
        let later = ProcessID(pid: process.pid, startTime: process.startTime + 1)
        let before = desk.machine
        desk.forget()
        desk.take(.exited(later, .killed))
        #expect(desk.machine == before && desk.effects == [.forget(later)])
        // It is registered while the victim still dies: a stranger to all of this.
        let number = try desk.desk.register(
            ReportedProcess(lineage: [later], user: Desk.user, session: .user(Desk.user)))
        try desk.exit(victim)
        #expect(desk.exitReason(victim) == .reclaimed && desk.reclaimed == [other])
        #expect(desk.desk.state(number) == .background)
    }

    @Test("a victim that is unregistered is waited for no longer, and nothing is said of it afterwards")
    func unregistered() throws {
        var (desk, victim, other) = try chosen()
        try desk.perform(.unregister(victim))
        #expect(desk.exitReason(victim) == .unregistered && desk.reclaimed == [victim, other])
        try desk.exit(other)
        try desk.exit(victim)
        desk.pass(5 * Self.second)
        #expect(desk.notices.isEmpty && desk.machine.pressure.victim == nil)
        #expect(desk.machine.pressure.excluded.isEmpty && desk.machine.pressure.sizes.isEmpty)

        // In the background it is not killed any more, either.
        var running = PressureDesk()
        let number = try running.background()
        let next = try running.background(10 << 20)
        running.runShort()
        try running.perform(.unregister(number))
        #expect(running.willReclaim == [number, next])
        running.pass(5 * Self.second)
        #expect(running.killed == [next])
    }

    @Test("an application that is not the victim and is given up leaves nothing behind")
    func othersUnregistered() throws {
        var (desk, victim, other) = try chosen()
        desk.take(.spared(victim, "it runs again"))
        try desk.perform(.unregister(victim))
        #expect(
            desk.machine.pressure.excluded.isEmpty && desk.machine.pressure.sizes.keys.elementsEqual([other]))
    }

    @Test("a source that vanishes while its victim dies: the event is over, and the next one begins anew")
    func vanished() throws {
        for dies in [true, false] {
            var (desk, victim, _) = try chosen { $0.pressure.killsPerEvent = 1 }
            desk.take(.pressureSources([]))
            if dies { try desk.exit(victim) }
            desk.pass(10 * Self.second)
            #expect(desk.machine.memoryPressure == .normal && desk.desk.machine.nextDeadline() == nil)
            #expect(desk.machine.pressure.victim == nil)
            if !dies { try desk.exit(victim) }
            #expect(desk.exitReason(victim) == .reclaimed)
            var fresh = Pressure()
            fresh.levelChangedAt = desk.machine.pressure.levelChangedAt
            // That is told once for each suspension.
            fresh.pagedOut = desk.machine.pressure.pagedOut
            #expect(desk.machine.pressure == fresh)
            // What the event before has cost does not count.
            desk.forget()
            desk.take(.pressureSources([PressureDesk.everybody]))
            desk.runShort()
            #expect(desk.reclaimed.count == 1)
        }
    }

    @Test("one source vanishes, and another stays short: the victim is waited for, and the next is taken")
    func oneVanished() throws {
        let slice = PressureSource(path: "/slice/1000", user: 1000)
        var desk = PressureDesk(sources: [PressureDesk.everybody, slice])
        let victim = try desk.held(60 << 20)
        let other = try desk.held(50 << 20)
        desk.runShort()
        #expect(desk.reclaimed == [victim])
        desk.take(.pressureSources([slice]))
        desk.pass(100_000)
        #expect(desk.reclaimed == [victim] && desk.machine.memoryPressure == .critical)
        try desk.exit(victim)
        #expect(desk.reclaimed == [victim, other])
    }

    @Test("observe in the middle: who was killed dies, nobody else does, and it is said who would")
    func observeMeanwhile() throws {
        var (desk, victim, other) = try chosen()
        // What policy holds is let go; this one stays.
        try desk.perform(.suspend(other, holder: "uid:0"))
        desk.configure { $0.mode = .observe }
        try desk.exit(victim)
        #expect(desk.exitReason(victim) == .reclaimed)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [victim] && desk.notices == [.wouldReclaim(50 << 20)])
        // What was only promised has not come: enforced again, it is taken.
        desk.configure { $0.mode = .enforce }
        desk.pass(Self.second)
        #expect(desk.reclaimed == [victim, other])
    }

    @Test("observe in the middle: who was told to end in the background, is not killed")
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

    @Test("the same where the configuration says meanwhile that it is not reclaimable")
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

    @Test("a ForceQuit of the victim ends it as what it is, and the next waits for it all the same")
    func forceQuit() throws {
        var (desk, victim, other) = try chosen()
        try desk.perform(.terminate(victim, force: true))
        #expect(desk.reclaimed == [victim] && desk.killed == [victim])
        try desk.exit(victim)
        #expect(desk.exitReason(victim) == .forceQuit && desk.reclaimed == [victim, other])
    }
}

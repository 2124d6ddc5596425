import AppStateContract
import Testing

@testable import LifeCycle

/// Which applications are ended while memory is critical, and how (§ 6).
@Suite("Reclaim")
struct ReclaimTests {
    private static let second: Microseconds = 1_000_000

    /// Ends whichever application is being ended, until there is none; returns them in order.
    private func endAll(_ desk: inout PressureDesk) throws -> [ApplicationNumber] {
        var ended: [ApplicationNumber] = []
        while let victim = desk.machine.applications.values.first(where: \.isBeingReclaimed) {
            ended.append(victim.number)
            try desk.exit(victim.number)
        }
        return ended
    }

    @Test("held applications are ended before stopped ones, and stopped ones before those in the background")
    func ranks() throws {
        var desk = PressureDesk()
        let background = try desk.background(400 << 20)
        let stopped = try desk.stopped(200 << 20)
        let stranger = try desk.background(100 << 20)
        desk.handle(.stopped(stranger, holder: "pid 7"))
        let held = try desk.held(10 << 20)
        desk.pass(100 * Self.second)
        desk.runShort()
        #expect(try endAll(&desk) == [held, stopped, stranger, background])
        #expect(desk.reclaimed == [held, stopped, stranger] && desk.willReclaim == [background])
    }

    @Test("within a rank, the user with most memory comes first, then age weighted by size")
    func within() throws {
        var desk = PressureDesk()
        let old = try desk.held(40 << 20)
        desk.pass(10 * Self.second)
        let large = try desk.held(90 << 20)
        let small = try desk.held(30 << 20, user: 1001)
        let running = try desk.background(200 << 20, user: 1001)
        desk.pass(10 * Self.second)
        desk.runShort()
        // 20 s × 40 MiB against 10 s × 90 MiB; the other user holds more, although in a running application.
        #expect(try endAll(&desk) == [small, large, old, running])
    }

    /// The machine of a daemon that takes over just after an application was to be ended.
    private func takeover(_ desk: inout PressureDesk) throws -> (next: Machine, number: ApplicationNumber) {
        let held = try desk.held(60 << 20)
        desk.runShort()
        #expect(desk.reclaimed == [held])
        var next = Machine(settings: desk.machine.settings)
        let number = try next.restore(#require(desk.machine.record(of: held)))
        #expect(number == held)
        return (next, number)
    }

    @Test("the next daemon forgets a reclaim that was perhaps not carried out, and decides again")
    func restart() throws {
        var desk = PressureDesk()
        let takeover = try takeover(&desk)
        var next = takeover.next
        let number = takeover.number
        _ = next.reassert(number, at: desk.now)
        #expect(next.applications[number]?.isTerminating == false)
        #expect(next.applications[number]?.state == .suspended)
    }

    @Test("the next daemon finishes a reclaim that has begun, and announces it as one")
    func restartWhileDying() throws {
        var desk = PressureDesk()
        let takeover = try takeover(&desk)
        var next = takeover.next
        let number = takeover.number
        let process = try #require(next.applications[number]).process
        let orders = next.reassert(number, isDying: true, at: desk.now)
        let ends: [Effect] = [.willReclaim(number), .kill(number)]
        #expect(orders.filter(ends.contains) == ends)
        #expect(next.pressure.victim?.number == number)
        let effects = next.handle(.exited(process, .killed), at: desk.now)
        #expect(effects.contains(.removed(number, .reclaimed)))
        #expect(next.pressure.victim == nil)
    }

    @Test("the next application is ended only after the last is gone and memory was sampled again")
    func oneAtATime() throws {
        var desk = PressureDesk()
        let first = try desk.held(60 << 20)
        let second = try desk.held(50 << 20)
        let third = try desk.held(40 << 20)
        desk.runShort()
        #expect(desk.reclaimed == [first])
        desk.trigger(.critical)
        desk.pass(200_000)
        #expect(desk.reclaimed == [first])
        desk.isDeaf = true
        try desk.exit(first)
        #expect(desk.reclaimed == [first] && desk.exitReason(first) == .reclaimed)
        #expect(desk.machine.nextReading == desk.now)
        desk.isDeaf = false
        desk.read()
        #expect(desk.reclaimed == [first, second])
        desk.set(PressureDesk.line)
        desk.pass(2 * Self.second) { try? $0.exit(second) }
        #expect(desk.reclaimed == [first, second] && desk.machine.applications[third] != nil)
        #expect(desk.notices.isEmpty)
    }

    @Test("a process that survives SIGKILL delays the next end by KillWaitSec only, and is reported")
    func stuck() throws {
        var desk = PressureDesk()
        let first = try desk.held(60 << 20)
        let second = try desk.held(50 << 20)
        desk.runShort()
        desk.forget()
        desk.pass(249_999)
        #expect(desk.reclaimed.isEmpty && desk.notices.isEmpty)
        desk.pass(1)
        #expect(desk.reclaimed == [second] && desk.notices == [.reclaimStuck(after: 250_000)])
        try desk.exit(second)
        // It is not killed again, and its exit reason is still known.
        desk.pass(2 * Self.second)
        #expect(desk.reclaimed == [second])
        try desk.exit(first)
        #expect(desk.exitReason(first) == .reclaimed)
    }

    @Test("the next end waits until the memory of all processes of the last is released, KillWaitSec at most")
    func released() throws {
        var desk = PressureDesk()
        let held = try [60, 50, 40, 30].map { try desk.held($0 << 20) }
        desk.isReleasing = true
        desk.runShort()
        // Its main process is gone, and the others are not.
        try desk.exit(held[0])
        desk.pass(100_000)
        #expect(desk.reclaimed == [held[0]])
        desk.handle(.released(held[0]))
        #expect(desk.reclaimed == Array(held.prefix(2)))
        try desk.exit(held[1])
        desk.pass(250_000)
        #expect(desk.reclaimed == Array(held.prefix(3)) && desk.notices.isEmpty)
        desk.handle(.released(held[2]))
        #expect(desk.reclaimed == Array(held.prefix(3)))
        try desk.exit(held[2])
        #expect(desk.reclaimed == held)
    }

    @Test(
        "nothing is ended before sizes are known, and these are read at once when memory is found to be short"
    )
    func sizes() throws {
        var desk = PressureDesk()
        _ = try desk.held(10 << 20)
        let large = try desk.held(90 << 20)
        desk.isDeaf = true
        desk.setAll(0)
        desk.read()
        #expect(desk.machine.memoryPressure == .critical && desk.reclaimed.isEmpty)
        #expect(desk.machine.nextReading.map { $0 <= desk.now } == true)
        desk.read()
        #expect(desk.reclaimed == [large])
    }

    @Test("exempt applications are never ended, however long memory is critical")
    func never() throws {
        var desk = PressureDesk(sources: [PressureSource(path: "/slice/1000", user: 1000)]) {
            $0.applications["org.example.A"] = Settings.Override()
            $0.applications["org.example.A"]?.backgroundModes = ["audio"]
        }
        let active = try desk.background()
        _ = try desk.background { $0.launchMode = .foreground }
        _ = try desk.background { $0.reclaimable = false }
        _ = try desk.held { $0.reclaimable = false }
        _ = try desk.background { $0.delegate = ":1.5" }
        _ = try desk.background { $0.suspension = .manual }
        _ = try desk.background { $0.suspension = .never }
        _ = try desk.background { $0.backgroundModes = ["audio"] }
        let tasked = try desk.background()
        _ = try desk.held(user: 1001)
        _ = try desk.background(user: 1001)
        try desk.perform(.beginBackgroundTask(tasked, name: "a", by: ":1.7"))
        try desk.focus(active)
        for number in desk.machine.applications.keys where desk.machine.applications[number]?.user == 1000 {
            #expect(desk.machine.reclaimRank(of: number) == nil, "\(number)")
        }
        desk.runShort()
        desk.trigger(.critical, of: PressureSource(path: "/slice/1000", user: 1000))
        desk.pass(15 * Self.second)
        #expect(desk.machine.memoryPressure == .critical)
        #expect(desk.reclaimed.isEmpty && desk.willReclaim.isEmpty && desk.killed.isEmpty)
        // Once its task has ended, it may be ended.
        try desk.perform(.endBackgroundTask(tasked, task: 1))
        desk.pass(Self.second)
        #expect(desk.willReclaim == [tasked])
    }

    @Test("an application whose session has lost its window reporter is not ended")
    func lostReporter() throws {
        var desk = PressureDesk()
        let number = try desk.background()
        let reporter = Desk.reporter()
        try desk.perform(.updateWindow(Desk.report(1, desk.process(number), visible: false), reporter))
        desk.handle(.disconnected(reporter.connection))
        desk.runShort()
        desk.pass(5 * Self.second)
        #expect(desk.desk.state(number) == .background && desk.willReclaim.isEmpty)
    }

    @Test(
        "observe mode reports which applications it would end, with their bytes, and ends none"
    )
    func observe() throws {
        var desk = PressureDesk { $0.mode = .observe }
        var numbers: [UInt64: ApplicationNumber] = [:]
        for bytes in [5, 10, 15, 20] as [UInt64] {
            numbers[bytes] = try desk.stopped(bytes << 20)
        }
        func wouldBring(_ bytes: UInt64) -> UInt64? {
            numbers[bytes].flatMap { desk.machine.wouldBeReclaimed($0) }
        }
        desk.runShort(to: 0)
        desk.pass(10 * Self.second)
        // `Explain` says the same for each, for as long as the event lasts.
        #expect(wouldBring(20) == 20 << 20 && wouldBring(15) == 15 << 20)
        #expect(wouldBring(10) == nil && wouldBring(5) == nil)
        // 20 MiB are less than two fifths of the line of 51.2 MiB; with 15 MiB more they are not.
        #expect(desk.notices == [.wouldReclaim(20 << 20), .wouldReclaim(15 << 20)])
        #expect(desk.reclaimed.isEmpty && desk.willReclaim.isEmpty && desk.killed.isEmpty)
        #expect(desk.machine.applications.values.allSatisfy { !$0.isTerminating })
        // The reported bytes are also enough for what follows.
        desk.pass(Self.second)
        #expect(desk.notices.count == 2)
        // Another event reports them again.
        desk.calmDown()
        #expect(wouldBring(20) == nil && wouldBring(15) == nil)
        desk.forget()
        desk.runShort(to: 0)
        desk.pass(Self.second)
        #expect(desk.notices == [.wouldReclaim(20 << 20), .wouldReclaim(15 << 20)])
    }

    @Test("one event causes at most KillsPerEvent ends, and a notice says once that it needed more")
    func killsPerEvent() throws {
        var desk = PressureDesk { $0.pressure.killsPerEvent = 3 }
        for _ in 0..<6 { _ = try desk.held() }
        desk.runShort()
        #expect(try endAll(&desk).count == 3)
        desk.pass(10 * Self.second)
        #expect(desk.reclaimed.count == 3 && desk.notices == [.reclaimLimit(3)])
        desk.calmDown()
        desk.runShort()
        #expect(try endAll(&desk).count == 3)
    }

    @Test(
        "a background application gets WillTerminate and 1 s, SIGTERM after half of it, SIGKILL at its end")
    func background() throws {
        var desk = PressureDesk()
        let number = try desk.background { $0.delegate = ":1.5" }
        let other = try desk.background(10 << 20)
        try desk.perform(.finishLaunching(number, by: ":1.5"))
        desk.forget()
        desk.runShort()
        let deadline = desk.now + Self.second
        let told = Effect.announce(number, .willTerminate(serial: 2, deadline: deadline), to: .all)
        #expect(desk.effects.contains(told) && desk.willReclaim == [number])
        desk.pass(499_999)
        #expect(!desk.effects.contains(.requestExit(number)))
        desk.pass(1)
        #expect(desk.effects.contains(.requestExit(number)) && desk.killed.isEmpty)
        desk.pass(500_000)
        #expect(desk.killed == [number] && desk.willReclaim == [number])
        #expect(desk.notices == [.unresponsive(.termination)])
        try desk.exit(number)
        #expect(desk.exitReason(number) == .reclaimed && desk.willReclaim == [number, other])
    }

    @Test("an application that a client terminates meanwhile is ended, even if it gets the focus")
    func terminatedMeanwhile() throws {
        var desk = PressureDesk()
        let number = try desk.background { $0.delegate = ":1.5" }
        try desk.perform(.finishLaunching(number, by: ":1.5"))
        desk.runShort()
        #expect(desk.willReclaim == [number])
        try desk.perform(.terminate(number, force: false))
        try desk.focus(number)
        #expect(desk.machine.applications[number]?.isTerminating == true)
        desk.pass(Self.second)
        #expect(desk.killed == [number])
        try desk.exit(number)
        #expect(desk.exitReason(number) == .terminated)
        #expect(desk.machine.pressure.victim == nil)
    }

    @Test(
        "an application that gets the focus or a visible window is not ended, and the next one is chosen at once",
        arguments: [true, false])
    func toTheFront(byFocus: Bool) throws {
        var desk = PressureDesk()
        let number = try desk.background { $0.delegate = ":1.5" }
        let other = try desk.background(10 << 20) { $0.delegate = ":1.6" }
        try desk.perform(.finishLaunching(number, by: ":1.5"))
        try desk.perform(.finishLaunching(other, by: ":1.6"))
        desk.runShort()
        #expect(desk.willReclaim == [number])
        if byFocus {
            try desk.focus(number)
        } else {
            try desk.perform(.updateWindow(Desk.report(1, desk.process(number)), Desk.reporter()))
        }
        #expect(desk.notices == [.spared("it has come to the front")])
        #expect(desk.willReclaim == [number, other])
        desk.pass(5 * Self.second)
        #expect(desk.killed == [other] && !desk.effects.contains(.requestExit(number)))
        #expect(desk.machine.applications[number]?.isTerminating == false)
        #expect(!desk.notices.dropFirst().contains { if case .spared = $0 { true } else { false } })
    }
}

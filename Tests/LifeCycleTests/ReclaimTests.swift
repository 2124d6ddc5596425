import AppStateContract
import Testing

@testable import LifeCycle

/// Who is ended while it is critical, and how (§ 6).
@Suite("Reclaim")
struct ReclaimTests {
    private static let second: Microseconds = 1_000_000

    /// Ends whoever is being ended, until nobody is; answers them in order.
    private func endAll(_ desk: inout PressureDesk) throws -> [ApplicationNumber] {
        var ended: [ApplicationNumber] = []
        while let victim = desk.machine.applications.values.first(where: \.isBeingReclaimed) {
            ended.append(victim.number)
            try desk.exit(victim.number)
        }
        return ended
    }

    @Test("held goes before stopped, and stopped before background")
    func ranks() throws {
        var desk = PressureDesk()
        let background = try desk.background(400 << 20)
        let stopped = try desk.stopped(200 << 20)
        let stranger = try desk.background(100 << 20)
        desk.take(.stopped(stranger, holder: "pid 7"))
        let held = try desk.held(10 << 20)
        desk.pass(100 * Self.second)
        desk.runShort()
        #expect(try endAll(&desk) == [held, stopped, stranger, background])
        #expect(desk.reclaimed == [held, stopped, stranger] && desk.willReclaim == [background])
    }

    @Test("of one rank: the user who holds most, then the longest suspended weighted by size")
    func within() throws {
        var desk = PressureDesk()
        let old = try desk.held(40 << 20)
        desk.pass(10 * Self.second)
        let large = try desk.held(90 << 20)
        let small = try desk.held(30 << 20, user: 1001)
        let running = try desk.background(200 << 20, user: 1001)
        desk.pass(10 * Self.second)
        desk.runShort()
        // 20 s × 40 MiB against 10 s × 90 MiB; the other user holds more, though in what runs.
        #expect(try endAll(&desk) == [small, large, old, running])
    }

    @Test("what was decided, and perhaps not carried out, is forgotten by the next daemon: it decides anew")
    func restart() throws {
        var desk = PressureDesk()
        let held = try desk.held(60 << 20)
        desk.runShort()
        #expect(desk.reclaimed == [held])
        var next = Machine(settings: desk.machine.settings)
        let number = try next.restore(#require(desk.machine.record(of: held)))
        _ = next.reassert(number, at: desk.now)
        #expect(next.applications[held]?.isTerminating == false)
        #expect(next.applications[held]?.state == .suspended)
    }

    @Test("one at a time: the next only when the one before is gone and memory is looked at anew")
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
        #expect(desk.effects.last == .sampleMemory(PressureDesk.everybody))
        desk.isDeaf = false
        let sample = MemorySample(available: PressureDesk.short, total: PressureDesk.total, swapTotal: 0)
        desk.take(.memorySampled(PressureDesk.everybody, sample))
        #expect(desk.reclaimed == [first, second])
        desk.set(PressureDesk.line)
        desk.pass(2 * Self.second) { try? $0.exit(second) }
        #expect(desk.reclaimed == [first, second] && desk.machine.applications[third] != nil)
        #expect(desk.notices.isEmpty)
    }

    @Test("two sources that are short of the same memory cost as many as one")
    func twoSources() throws {
        let slice = PressureSource(path: "/slice/1000", user: 1000)
        for order in [[PressureDesk.everybody, slice], [slice, PressureDesk.everybody]] {
            var desk = PressureDesk(sources: order)
            let first = try desk.held(60 << 20)
            _ = try desk.held(50 << 20)
            desk.runShort()
            #expect(desk.reclaimed == [first])
            // It is gone, and its memory is there: what was sampled before that decides nothing.
            desk.setAll(100 << 20)
            try desk.exit(first)
            desk.pass(5 * Self.second)
            #expect(desk.reclaimed == [first])
        }
    }

    @Test("one stall costs one, though two sources tell of it and more is left than is critical")
    func oneStall() throws {
        let slice = PressureSource(path: "/slice/1000", user: 1000)
        var desk = PressureDesk(sources: [PressureDesk.everybody, slice])
        let first = try desk.held(60 << 20)
        _ = try desk.held(50 << 20)
        desk.setAll(PressureDesk.line * 3 / 2)
        desk.isDeaf = true
        desk.trigger(.critical)
        desk.trigger(.critical, of: slice)
        desk.isDeaf = false
        desk.take(.memoryMeasured(desk.sizes))
        for (source, sample) in desk.memory { desk.take(.memorySampled(source, sample)) }
        #expect(desk.reclaimed == [first])
        try desk.exit(first)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [first])
    }

    @Test("whom SIGKILL does not end holds up the others for KillWaitSec, and a notice says so")
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
        // It is not killed again, and what it was killed for is not forgotten.
        desk.pass(2 * Self.second)
        #expect(desk.reclaimed == [second])
        try desk.exit(first)
        #expect(desk.exitReason(first) == .reclaimed)
    }

    @Test("the sizes are waited for, and not for long")
    func sizes() throws {
        var desk = PressureDesk()
        _ = try desk.held(10 << 20)
        let large = try desk.held(90 << 20)
        desk.isDeaf = true
        desk.isSlow = true
        desk.setAll(PressureDesk.short)
        desk.trigger()
        let sample = MemorySample(available: PressureDesk.short, total: PressureDesk.total, swapTotal: 0)
        desk.take(.memorySampled(PressureDesk.everybody, sample))
        #expect(desk.machine.memoryPressure == .critical && desk.reclaimed.isEmpty)
        var late = desk
        desk.take(.memoryMeasured(desk.sizes))
        #expect(desk.reclaimed == [large])
        late.isDeaf = false
        late.pass(200_000)
        #expect(late.reclaimed.count == 1)
    }

    @Test("whoever may not be ended is not, however long it is critical")
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
        // Its task ends: it may be.
        try desk.perform(.endBackgroundTask(tasked, task: 1))
        desk.pass(Self.second)
        #expect(desk.willReclaim == [tasked])
    }

    @Test("where the window reporter of its session is gone, nobody knows that it is in the background")
    func lostReporter() throws {
        var desk = PressureDesk()
        let number = try desk.background()
        let reporter = Desk.reporter()
        try desk.perform(.updateWindow(Desk.report(1, desk.process(number), visible: false), reporter))
        desk.take(.disconnected(reporter.connection))
        desk.runShort()
        desk.pass(5 * Self.second)
        #expect(desk.desk.state(number) == .background && desk.willReclaim.isEmpty)
    }

    @Test(
        "in observe mode it says whom it would end, with the bytes, as many as would be needed, and does nothing"
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
        // `Explain` says the same of each, for as long as the event lasts.
        #expect(wouldBring(20) == 20 << 20 && wouldBring(15) == 15 << 20)
        #expect(wouldBring(10) == nil && wouldBring(5) == nil)
        // 20 MiB are less than two fifths of the line of 51.2 MiB, and with 15 more they are not.
        #expect(desk.notices == [.wouldReclaim(20 << 20), .wouldReclaim(15 << 20)])
        #expect(desk.reclaimed.isEmpty && desk.willReclaim.isEmpty && desk.killed.isEmpty)
        #expect(desk.machine.applications.values.allSatisfy { !$0.isTerminating })
        // What is said to come is enough for what follows, too.
        desk.pass(Self.second)
        #expect(desk.notices.count == 2)
        // Another event says it again.
        desk.calmDown()
        #expect(wouldBring(20) == nil && wouldBring(15) == nil)
        desk.forget()
        desk.runShort(to: 0)
        desk.pass(Self.second)
        #expect(desk.notices == [.wouldReclaim(20 << 20), .wouldReclaim(15 << 20)])
    }

    @Test("what one user's applications would bring is not counted for another's slice")
    func observeSlices() throws {
        let slices = [
            PressureSource(path: "/slice/1000", user: 1000), PressureSource(path: "/slice/1001", user: 1001),
        ]
        var desk = PressureDesk(sources: slices) { $0.mode = .observe }
        let mine = try desk.stopped(100 << 20, user: 1000)
        let theirs = try desk.stopped(101 << 20, user: 1001)
        desk.runShort()
        desk.pass(Self.second)
        #expect(desk.notices == [.wouldReclaim(100 << 20), .wouldReclaim(101 << 20)])
        #expect(desk.machine.applications[mine] != nil && desk.machine.applications[theirs] != nil)
    }

    @Test("one event costs KillsPerEvent at most, and says once that it would have cost more")
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
        "a background application gets WillTerminate with a second, SIGTERM at half of it, SIGKILL after it")
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

    @Test("a background application that is still there KillWaitSec after its SIGKILL holds up nobody")
    func backgroundStuck() throws {
        var desk = PressureDesk()
        let number = try desk.background()
        let other = try desk.background(10 << 20)
        desk.runShort()
        desk.pass(1_249_999)
        #expect(desk.killed == [number] && desk.willReclaim == [number])
        desk.pass(1)
        #expect(desk.willReclaim == [number, other] && desk.notices == [.reclaimStuck(after: 250_000)])
    }

    @Test("whoever comes to the front meanwhile is not ended, and the next is taken at once")
    func toTheFront() throws {
        var desk = PressureDesk()
        let number = try desk.background { $0.delegate = ":1.5" }
        let other = try desk.background(10 << 20) { $0.delegate = ":1.6" }
        try desk.perform(.finishLaunching(number, by: ":1.5"))
        try desk.perform(.finishLaunching(other, by: ":1.6"))
        desk.runShort()
        #expect(desk.willReclaim == [number])
        try desk.focus(number)
        #expect(desk.notices == [.spared("it has come to the front")])
        #expect(desk.willReclaim == [number, other])
        desk.pass(5 * Self.second)
        #expect(desk.killed == [other] && !desk.effects.contains(.requestExit(number)))
        #expect(desk.machine.applications[number]?.isTerminating == false)
        #expect(!desk.notices.dropFirst().contains { if case .spared = $0 { true } else { false } })
    }
}

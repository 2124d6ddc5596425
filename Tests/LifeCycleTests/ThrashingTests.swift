import AppStateContract
import Testing

@testable import LifeCycle

/// Whether pages in use are evicted, and what the daemon does about it (§ 6).
@Suite("Thrashing")
struct ThrashingTests {
    private static let critical: UInt64 = 50 << 20
    private static let cached: UInt64 = 100 << 20
    /// A tenth of the cache within a second.
    private static let much = Double(10 << 20)
    private static let second: Microseconds = 1_000_000

    private static func sample(_ available: UInt64, own: UInt64? = nil) -> MemorySample {
        MemorySample(
            available: available, total: 1 << 30, swapTotal: 0,
            files: FileCache(cached: cached, evicted: 0, reclaimed: 0, refaulted: 0),
            front: own.map { FrontMemory(ApplicationNumber(1), cached: $0, refaulted: 0, waited: 0) })
    }

    /// The table of `ThrashingPolicy`, row by row, over all values of its columns.
    @Test("the table holds for all values, without and with a known application in front")
    func table() {
        let availables = [
            0, 2 * Self.critical - 1, 2 * Self.critical, 4 * Self.critical - 1, 4 * Self.critical,
        ]
        let some = Double(1 << 20)
        let paces = [0, some - 1, some, Self.much - 1, Self.much, 10 * Self.much]
        let waitings = [0, 0.009, 0.01, 0.069, 0.07, 1]
        var count = 0
        for available in availables {
            for evicting in paces {
                for refaulting in paces {
                    for waiting in waitings {
                        let churn = FileChurn(evicting: evicting, refaulting: refaulting, waiting: waiting)
                        let takes = evicting >= Self.much
                        let readsBack = available < 4 * Self.critical && takes && refaulting >= Self.much
                        let searches =
                            available < 2 * Self.critical && takes && waiting >= 0.07 && refaulting >= some
                        let isThrashing = ThrashingPolicy.isThrashing(
                            churn, Self.sample(available), critical: Self.critical, limit: 1_000)
                        #expect(isThrashing == (readsBack || searches), "\(available) \(churn)")
                        count += 1
                        for own in paces {
                            for ownWaiting in waitings {
                                let churn = FileChurn(
                                    evicting: evicting, refaulting: refaulting, waiting: waiting,
                                    front: FileChurn.Front(refaulting: own, waiting: ownWaiting))
                                let readsBack =
                                    available < 4 * Self.critical && takes && own >= Self.much
                                    && ownWaiting >= 0.01
                                let searches =
                                    available < 2 * Self.critical && takes && waiting >= 0.07
                                    && own >= some && ownWaiting >= 0.01
                                let isThrashing = ThrashingPolicy.isThrashing(
                                    churn, Self.sample(available, own: Self.cached),
                                    critical: Self.critical, limit: 1_000)
                                #expect(isThrashing == (readsBack || searches), "\(available) \(churn)")
                                count += 1
                            }
                        }
                    }
                }
            }
        }
        #expect(count == 5 * 6 * 6 * 6 * (1 + 6 * 6))
    }

    @Test(
        "there is no thrashing without a limit, without a count of file pages, or below 1 MiB a second"
    )
    func unknown() {
        let churn = FileChurn(evicting: 1e9, refaulting: 1e9, waiting: 1)
        var sample = Self.sample(0)
        #expect(ThrashingPolicy.isThrashing(churn, sample, critical: Self.critical, limit: 1_000))
        #expect(ThrashingPolicy.isThrashing(churn, sample, critical: .max, limit: .max) == false)
        #expect(!ThrashingPolicy.isThrashing(churn, sample, critical: Self.critical, limit: nil))
        sample.files?.cached = 0
        let little = FileChurn(evicting: 1e6, refaulting: 1e6, waiting: 1)
        #expect(!ThrashingPolicy.isThrashing(little, sample, critical: Self.critical, limit: 1))
        #expect(ThrashingPolicy.isThrashing(churn, sample, critical: Self.critical, limit: 1))
        sample.files = nil
        #expect(!ThrashingPolicy.isThrashing(churn, sample, critical: Self.critical, limit: 1))
    }

    @Test("averages follow the counts, halve in 350 ms, and start over when another application is in front")
    func averages() throws {
        var churn = FileChurn()
        var before = Self.sample(0, own: Self.cached)
        func pass(_ span: Double, evicted: UInt64, own: UInt64, waited: UInt64) {
            var after = before
            after.files?.evicted += evicted
            after.files?.reclaimed += evicted
            after.files?.refaulted += evicted / 2
            after.front?.refaulted += own
            after.front?.waited += waited
            after.waited += waited
            churn.take(before, after, span: span)
            before = after
        }
        // A cgroup that evicts its own pages because of its own limit does not count.
        var limited = before
        limited.files?.evicted += 1 << 30
        churn.take(before, limited, span: 0.1)
        #expect(churn.evicting == 0)
        before = limited
        for _ in 0..<100 { pass(0.1, evicted: 1 << 20, own: 1 << 18, waited: 50_000) }
        #expect(abs(churn.evicting - Double(10 << 20)) < 1 && abs(churn.refaulting - Double(5 << 20)) < 1)
        #expect(abs(churn.waiting - 0.5) < 1e-6)
        let own = try #require(churn.front)
        #expect(abs(own.refaulting - Double(10 << 18)) < 1 && abs(own.waiting - 0.5) < 1e-6)
        for _ in 0..<35 { pass(0.01, evicted: 0, own: 0, waited: 0) }
        #expect((0.4...0.6).contains(churn.evicting / Double(10 << 20)))
        // Another application is in front; its counts are far greater.
        before.front = FrontMemory(ApplicationNumber(2), cached: 1, refaulted: 1 << 40, waited: 1 << 40)
        var other = before
        other.front = FrontMemory(ApplicationNumber(3), cached: 1, refaulted: 1 << 41, waited: 1 << 41)
        churn.take(before, other, span: 0.1)
        #expect(churn.front == FileChurn.Front())
        other.front = nil
        churn.take(before, other, span: 0.1)
        #expect(churn.front == nil)
        // Falling counts (of a source that was replaced) and a span of zero change nothing.
        let last = churn
        churn.take(before, other, span: 0)
        #expect(churn == last)
        other.files?.evicted = 0
        churn.take(before, other, span: 0.1)
        #expect(churn.evicting < last.evicting)
    }

    // MARK: The machine

    /// 100 MiB are left, which is neither critical nor ample, and pages in use are evicted.
    private func thrashing(_ change: (inout PressureDesk) -> Void = { _ in }) throws -> (
        desk: PressureDesk, front: ApplicationNumber, held: [ApplicationNumber]
    ) {
        var desk = PressureDesk { $0.pressure.killWait = 60 * Self.second }
        let front = try desk.background()
        try desk.focus(front)
        let held = try (0..<4).map { _ in try desk.stopped() }
        desk.churn = PressureDesk.Churn(evicting: 30 << 20, refaulting: 30 << 20)
        change(&desk)
        desk.forget()
        return (desk, front, held)
    }

    @Test(
        "thrashing ends suspended applications one by one as long as pages are evicted, never the front"
    )
    func ends() throws {
        var (desk, front, held) = try thrashing()
        desk.runShort(to: 100 << 20)
        #expect(desk.reclaimed.isEmpty)
        desk.pass(Self.second)
        #expect(desk.machine.memoryPressure == .critical && desk.reclaimed == [held[0]])
        for count in 1..<4 {
            let before = desk.now
            try desk.exit(held[count - 1])
            #expect(desk.reclaimed.count == count, "without a new look")
            desk.pass(Self.second)
            #expect(desk.reclaimed == Array(held.prefix(count + 1)))
            let time = desk.log.last { if case .reclaim = $0.effect { true } else { false } }?.time
            #expect(time.map { $0 >= before + 100_000 } == true)
        }
        try desk.exit(held[3])
        desk.pass(20 * Self.second)
        #expect(desk.reclaimed == held && desk.desk.state(front) == .active && desk.willReclaim.isEmpty)
        // Nothing is evicted any more: the level is normal again after a while.
        desk.churn?.evicting = 0
        desk.setAll(PressureDesk.ample)
        desk.pass(20 * Self.second)
        #expect(desk.machine.memoryPressure == .normal && desk.isIdle)
    }

    @Test(
        "reads without evictions, single reads, and evictions with enough memory left end no application"
    )
    func harmless() throws {
        let harmless: [(String, (inout PressureDesk) -> Void)] = [
            ("read back", { $0.churn?.evicting = 0 }),
            ("read once", { $0.churn?.refaulting = 0 }),
            (
                "copied, while the kernel searches all the time",
                {
                    $0.churn?.refaulting = 0
                    $0.churn?.waiting = 1
                }
            ),
            (
                "waited for",
                {
                    $0.churn?.refaulting = 2 << 20
                    $0.churn?.waiting = 0.05
                }
            ),
            ("evicted and read back in a cgroup with a limit of its own", { $0.churn?.isForLimit = true }),
            ("little", { $0.churn?.cached = 400 << 20 }),
            ("not known", { $0.churn = nil }),
            ("switched off", { $0.configure { $0.pressure.thrashingLimit = nil } }),
        ]
        for (name, change) in harmless {
            var (desk, _, _) = try thrashing(change)
            desk.runShort(to: 100 << 20)
            desk.pass(10 * Self.second)
            #expect(desk.reclaimed.isEmpty && desk.machine.memoryPressure != .critical, "\(name)")
        }
        var (desk, _, _) = try thrashing()
        desk.runShort(to: 4 * PressureDesk.line + 4096)
        desk.pass(10 * Self.second)
        #expect(desk.reclaimed.isEmpty)
    }

    @Test(
        "waiting for pages ends an application only if less than twice the line is left"
    )
    func searching() throws {
        for (available, isEnded) in [(90, true), (110, false)] as [(UInt64, Bool)] {
            var (desk, _, held) = try thrashing {
                $0.churn?.refaulting = 2 << 20
                $0.churn?.waiting = 0.3
            }
            desk.runShort(to: available << 20)
            desk.pass(Self.second)
            #expect(desk.reclaimed == (isEnded ? [held[0]] : []))
        }
    }

    @Test(
        "file pages of suspended applications are dropped first, which delays the first end by up to 0.5 s"
    )
    func cheapFirst() throws {
        var (desk, front, held) = try thrashing { $0.isSlow = true }
        desk.runShort(to: 100 << 20)
        func asked(_ desk: PressureDesk) -> [ApplicationNumber] {
            desk.effects.compactMap { if case .pageOut(let number, .files) = $0 { number } else { nil } }
        }
        var waited: Microseconds = 0
        while asked(desk).isEmpty, waited < Self.second {
            desk.pass(10_000)
            waited += 10_000
        }
        #expect(asked(desk) == held && !asked(desk).contains(front))
        desk.pass(400_000)
        #expect(desk.reclaimed.isEmpty)
        // The page-outs freed memory: only later evictions count.
        var helped = desk
        for number in held { helped.take(.pagedOut(number, bytes: 2 << 20)) }
        helped.churn?.evicting = 0
        helped.pass(5 * Self.second)
        #expect(helped.reclaimed.isEmpty)
        // The page-outs freed nothing.
        var vain = desk
        for number in held { vain.take(.pagedOut(number)) }
        #expect(vain.reclaimed == [held[0]])
        // The page-outs hang.
        desk.pass(300_000)
        #expect(desk.reclaimed == [held[0]])
        // Exhausted memory does not wait for page-outs.
        var (hurry, _, _) = try thrashing { $0.isSlow = true }
        hurry.runShort(to: 100 << 20)
        hurry.pass(300_000)
        hurry.set(PressureDesk.short)
        hurry.pass(200_000)
        #expect(hurry.reclaimed == [held[0]])
    }

    @Test("above twice the line, thrashing raises the level and evicts file pages, but ends no application")
    func pageOutsAlone() throws {
        var (desk, _, held) = try thrashing()
        desk.runShort(to: 110 << 20)
        desk.pass(10 * Self.second)
        #expect(desk.machine.memoryPressure == .critical && desk.reclaimed.isEmpty)
        for number in held { #expect(desk.effects.contains(.pageOut(number, .files))) }
        desk.set(100 << 20)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [held[0]])
    }

    @Test("once an application has ended, the pages on the per-CPU lists count as left here, too")
    func perCPU() throws {
        var (desk, _, held) = try thrashing()
        desk.memory[PressureDesk.everybody]?.perCPU = 10 << 20
        desk.runShort(to: 95 << 20)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [held[0]])
        try desk.exit(held[0])
        desk.pass(10 * Self.second)
        #expect(desk.machine.memoryPressure == .critical && desk.reclaimed == [held[0]])
    }

    @Test("an alarm detects thrashing before the available memory reaches the line")
    func alarm() throws {
        var (desk, _, held) = try thrashing()
        desk.setAll(150 << 20)
        desk.read()
        #expect(!desk.machine.pressure.isEventOpen)
        desk.pass(Self.second)
        #expect(desk.isIdle, "nobody looks without an alarm")
        desk.read()
        #expect(desk.machine.pressure.isEventOpen && desk.machine.memoryPressure == .critical)
        #expect(desk.measuredAt == [desk.now])
        desk.pass(Self.second)
        #expect(desk.reclaimed.isEmpty, "150 MiB are ample")
        desk.setAll(100 << 20)
        desk.pass(Self.second)
        #expect(desk.reclaimed == [held[0]])
    }

    @Test("an alarm that finds evictions with little left opens an episode before anything is read back")
    func evicting() throws {
        var (desk, _, held) = try thrashing { $0.churn?.refaulting = 0 }
        desk.setAll(100 << 20)
        desk.read()
        desk.pass(Self.second)
        #expect(!desk.machine.pressure.isEventOpen)
        desk.read()
        #expect(desk.machine.pressure.isEventOpen && desk.machine.memoryPressure == .warning)
        for number in held { #expect(desk.effects.contains(.pageOut(number, .files))) }
        desk.pass(Self.second)
        #expect(desk.reclaimed.isEmpty)
    }

    /// After pages in use were lost and an application was ended for them, memory falls by 100 MiB a second.
    private static func fallingAgain(fromRoomOf room: Int) throws -> (PressureDesk, [ApplicationNumber]) {
        var (desk, _, held) = try Self().thrashing()
        desk.runShort(to: 60 << 20)
        desk.pass(second)
        #expect(desk.reclaimed == [held[0]])
        // Evictions began with a room of -40 MiB; now there are none.
        desk.churn?.evicting = 0
        try desk.exit(held[0])
        let start = desk.now
        desk.setAll(UInt64(Int(desk.churn?.cached ?? 0) + room))
        desk.pass(second / 5) { $0.setAll(UInt64(Int(100 << 20) + room) - ($0.now - start) * 105) }
        return (desk, held)
    }

    @Test("once pages in use were lost, the next application is ended before the kernel evicts again")
    func beforehand() throws {
        let (soon, held) = try Self.fallingAgain(fromRoomOf: -20 << 20)
        #expect(soon.reclaimed == Array(held.prefix(2)))
        let (later, _) = try Self.fallingAgain(fromRoomOf: 5 << 20)
        #expect(later.reclaimed == [held[0]])
    }

    @Test("a look of long ago does not show where the kernel begins to evict")
    func oldLook() {
        var gauge = PressureGauge()
        let settings = PressureSettings()
        func sample(_ available: UInt64, cached: UInt64, evicted: UInt64) -> MemorySample {
            MemorySample(
                available: available, total: 1 << 30, swapTotal: 0,
                files: FileCache(cached: cached, evicted: evicted, reclaimed: evicted, refaulted: evicted))
        }
        var now: Microseconds = 1
        gauge.take(sample(300 << 20, cached: 100 << 20, evicted: 0), at: now, settings)
        now += 20 * Self.second
        var evicted: UInt64 = 50 << 20
        gauge.take(sample(95 << 20, cached: 100 << 20, evicted: evicted), at: now, settings)
        #expect(gauge.isEpisodeOpen)
        for _ in 0..<50 {
            now += 20_000
            evicted += 1 << 20
            gauge.take(sample(95 << 20, cached: 100 << 20, evicted: evicted), at: now, settings)
        }
        #expect(gauge.level == .critical)
        gauge.relieved()
        gauge.freed(now)
        for available: UInt64 in [100 << 20, (100 << 20) - (40 << 10)] {
            now += 20_000
            gauge.take(sample(available, cached: 60 << 20, evicted: evicted), at: now, settings)
        }
        let wantsMore = gauge.wantsRelief(at: now, promised: 0, hasEnded: true, settings)
        #expect(!wantsMore)
    }

    @Test("applications that come and go do not make the count of lost pages begin again")
    func passers() throws {
        var (desk, _, held) = try thrashing()
        desk.runShort(to: 100 << 20)
        for _ in 0..<10 {
            let other = try desk.background()
            desk.pass(Self.second / 10)
            try desk.exit(other, .exited)
        }
        #expect(desk.reclaimed == [held[0]])
    }

    @Test("observe mode reports once which application it would end")
    func observe() throws {
        var (desk, _, held) = try thrashing { $0.configure { $0.mode = .observe } }
        desk.runShort(to: 100 << 20)
        desk.pass(5 * Self.second)
        #expect(desk.reclaimed.isEmpty && desk.notices == [.wouldReclaim(50 << 20)])
        #expect(desk.machine.wouldBeReclaimed(held[0]) == 50 << 20)
    }

    @Test("the front of a source is its active application, if there is only one")
    func front() throws {
        var desk = PressureDesk()
        let slice = PressureSource(path: "/slice/1000", user: 1000)
        #expect(desk.machine.front(of: PressureDesk.everybody) == nil)
        let mine = try desk.background()
        try desk.focus(mine)
        #expect(
            desk.machine.front(of: PressureDesk.everybody) == mine && desk.machine.front(of: slice) == mine)
        let theirs = try desk.background(user: 1001)
        try desk.focus(theirs)
        #expect(
            desk.machine.front(of: PressureDesk.everybody) == nil && desk.machine.front(of: slice) == mine)
    }
}

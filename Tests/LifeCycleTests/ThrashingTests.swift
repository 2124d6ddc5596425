import AppStateContract
import Testing

@testable import LifeCycle

/// Whether pages in use are evicted, and what the daemon does about it (§ 6).
@Suite("Thrashing")
struct ThrashingTests {
    private static let critical: UInt64 = 50 << 20
    private static let cached: UInt64 = 100 << 20
    private static let second: Microseconds = 1_000_000

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
        // From now on, one and a half times the line is enough.
        desk.set(70 << 20)
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
        for number in held { helped.handle(.pagedOut(number, bytes: 2 << 20)) }
        helped.churn?.evicting = 0
        helped.pass(5 * Self.second)
        #expect(helped.reclaimed.isEmpty)
        // The page-outs freed nothing.
        var vain = desk
        for number in held { vain.handle(.pagedOut(number)) }
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

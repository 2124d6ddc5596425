import AppStateContract
import Testing

@testable import LifeCycle

/// Levels, warnings and page-outs over all sources (§ 6).
@Suite("Pressure")
struct PressureTests {
    private static let second: Microseconds = 1_000_000
    private static let slice = PressureSource(path: "/slice/1001", user: 1001)
    private static let both = [PressureDesk.everybody, slice]

    @Test("there is no deadline before an event, and none after it")
    func noTimer() throws {
        var desk = PressureDesk()
        _ = try desk.held()
        #expect(desk.isIdle)
        desk.runShort(to: 200 << 20)
        #expect(!desk.isIdle && desk.machine.memoryPressure == .warning)
        desk.calmDown()
        #expect(desk.isIdle && desk.machine.memoryPressure == .normal)
        #expect(desk.machine.pressure.sizes.isEmpty)
    }

    @Test("sizes are measured when an event begins, every 5 s while it is critical, otherwise every minute")
    func measurements() {
        var desk = PressureDesk()
        let begin = desk.now
        desk.runShort(to: PressureDesk.line * 3 / 2)
        desk.pass(121 * Self.second)
        #expect(desk.measuredAt == [0, 60, 120].map { begin + $0 * Self.second })
        desk.forget()
        // The last measurement is more than 5 s old: the next one comes at once.
        desk.pass(30 * Self.second)
        let critical = desk.now
        desk.runShort()
        #expect(desk.machine.memoryPressure == .critical)
        desk.pass(12 * Self.second)
        #expect(desk.measuredAt == [0, 5, 10].map { critical + $0 * Self.second })
    }

    @Test("a source that is not read any more does not count any more")
    func lostSource() {
        var desk = PressureDesk(sources: Self.both)
        desk.runShort()
        #expect(desk.machine.memoryPressure == .critical)
        desk.watch([])
        desk.pass(2 * Self.second)
        #expect(desk.machine.memoryPressure == .normal && desk.isIdle)
    }

    @Test("running applications are warned at each rise; suspended and launching ones never are")
    func warnings() throws {
        var desk = PressureDesk()
        let (active, background) = (try desk.background(), try desk.background())
        let inactive = try desk.background { $0.launchMode = .foreground }
        let (held, stopped) = (try desk.held(), try desk.stopped())
        let launching = try desk.background { $0.delegate = ":1.5" }
        let stranger = try desk.background()
        desk.handle(.stopped(stranger, holder: "pid 7"))
        try desk.focus(active)
        desk.forget()
        desk.runShort(to: 200 << 20)
        #expect(desk.warned == [active, background, inactive])
        #expect(
            desk.effects.contains(.announce(active, .didReceiveMemoryWarning(.warning), to: .subscribers)))
        desk.forget()
        // Only suspended applications can be ended.
        desk.set(PressureDesk.short)
        desk.pass(Self.second)
        #expect(desk.warned.prefix(3) == [active, background, inactive])
        #expect(Set(desk.warned).isDisjoint(with: [held, stopped, launching, stranger]))
        #expect(
            desk.effects.contains(.announce(active, .didReceiveMemoryWarning(.critical), to: .subscribers)))
    }

    @Test("a suspended application does not receive an old memory warning when it runs again")
    func notReplayed() throws {
        var desk = PressureDesk()
        let number = try desk.held()
        try desk.perform(.becomeDelegate(number, ":1.5"))
        desk.runShort(to: 200 << 20)
        try desk.focus(number)
        desk.desk.settle()
        desk.handle(.timePassed)
        #expect(desk.machine.applications[number]?.state == .active && desk.warned.isEmpty)
    }

    @Test("low memory warnings: 50 at warning, 100 at critical, 255 once no suspended application is left")
    func lowMemoryWarnings() throws {
        var desk = PressureDesk()
        let held = try desk.held()
        _ = try desk.background()
        desk.runShort(to: 200 << 20)
        #expect(desk.lowMemoryWarnings == [.low])
        desk.set(PressureDesk.short)
        desk.pass(200_000)
        #expect(desk.lowMemoryWarnings == [.low, .medium] && desk.reclaimed == [held])
        try desk.exit(held)
        #expect(desk.lowMemoryWarnings == [.low, .medium, .critical])
        desk.pass(5 * Self.second)
        #expect(desk.lowMemoryWarnings.map(\.rawValue) == [50, 100, 255])
        desk.calmDown()
        desk.forget()
        desk.runShort(to: 200 << 20)
        #expect(desk.lowMemoryWarnings == [.low])
    }

    @Test("a slice's source concerns only its user, and no application is warned twice of the same level")
    func slices() throws {
        var desk = PressureDesk(sources: Self.both)
        let mine = try desk.background(user: 1000)
        let theirs = try desk.background(user: 1001)
        desk.setAll(200 << 20)
        desk.trigger(of: Self.slice)
        #expect(desk.warned == [theirs] && desk.lowMemoryWarnings.isEmpty)
        desk.trigger()
        #expect(desk.warned == [theirs, mine] && desk.lowMemoryWarnings == [.low])
        desk.forget()
        desk.setAll(PressureDesk.short)
        desk.desk.now += 500_000
        desk.read()
        #expect(desk.warned == [mine, theirs] && desk.lowMemoryWarnings.filter { $0 == .medium }.count == 1)
    }

    @Test(
        "with swap, suspended applications above 12 MiB are paged out once, longest suspended first"
    )
    func pageOut() throws {
        var desk = PressureDesk()
        var numbers: [ApplicationNumber] = []
        for _ in 0..<8 { numbers.append(try desk.held(20 << 20)) }
        let small = try desk.held(12 << 20)
        let running = try desk.background()
        desk.desk.now += Self.second
        let late = try desk.stopped(100 << 20)
        var without = desk
        desk.memory[PressureDesk.everybody]?.swapTotal = 1 << 30
        desk.runShort(to: 80 << 20)
        desk.pass(10 * Self.second)
        #expect(pagedOut(desk, .files).isEmpty)
        #expect(pagedOut(desk) == numbers + [late])
        #expect(!pagedOut(desk).contains(small) && !pagedOut(desk).contains(running))
        #expect(desk.reclaimed.isEmpty)
        // It is paged out again after it has run.
        try desk.perform(.resume(late, holder: "uid:0"))
        desk.desk.settle()
        desk.forget()
        desk.pass(Self.second)
        try desk.perform(.suspend(late, holder: "uid:0"))
        desk.desk.settle()
        desk.pass(Self.second)
        #expect(pagedOut(desk) == [late])
        // Without swap only file pages are paged out, of small applications too, and only while little memory is left.
        without.runShort(to: 4 * PressureDesk.line)
        without.pass(Self.second)
        #expect(pagedOut(without).isEmpty && pagedOut(without, .files).isEmpty)
        without.setAll(4 * PressureDesk.line - 4096)
        without.pass(10 * Self.second)
        #expect(pagedOut(without).isEmpty && pagedOut(without, .files) == numbers + [small, late])
        #expect(without.reclaimed.isEmpty)
    }

    private func pagedOut(
        _ desk: PressureDesk, _ extent: PageOutExtent = .everything
    ) -> [ApplicationNumber] {
        desk.effects.compactMap { effect in
            guard case .pageOut(let number, let what) = effect, what == extent else { return nil }
            return number
        }
    }
}

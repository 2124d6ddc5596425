import AppStateContract
import Testing

@testable import LifeCycle

/// Which source's memory is short, and which applications are ended for it (§ 6).
@Suite("Pressure, source by source")
struct PressureSourceTests {
    private static let second: Microseconds = 1_000_000
    private static let slice = PressureSource(path: "/slice/1001", user: 1001)
    private static let part = PressureSource(path: "/cgroup", isPart: true)

    /// Ends whichever application is being ended, until there is none.
    private func endAll(_ desk: inout PressureDesk) throws {
        while let victim = desk.machine.applications.values.first(where: \.isBeingReclaimed) {
            try desk.exit(victim.number)
        }
    }

    @Test("an event that stays open for days starts over once it is no longer critical")
    func lasting() throws {
        var desk = PressureDesk { $0.pressure.killsPerEvent = 2 }
        for _ in 0..<6 { _ = try desk.held() }
        for round in 1...3 {
            desk.runShort()
            try endAll(&desk)
            desk.pass(Self.second)
            #expect(desk.reclaimed.count == 2 * round)
            // Less than twice the line is available.
            desk.setAll(PressureDesk.line * 3 / 2)
            desk.pass(10 * Self.second)
            #expect(desk.machine.memoryPressure == .warning && desk.machine.pressure.isEventOpen)
        }
    }

    @Test("the ends in one user's slice do not count against other users and warn no other user")
    func oneSlice() throws {
        var desk = PressureDesk(sources: [PressureDesk.everybody, Self.slice]) {
            $0.pressure.killsPerEvent = 2
        }
        desk.memory[Self.slice]?.isLimited = true
        for _ in 0..<4 { _ = try desk.held(user: 1001) }
        for _ in 0..<2 { _ = try desk.held() }
        desk.set(PressureDesk.short, of: Self.slice)
        desk.trigger(.critical, of: Self.slice)
        try endAll(&desk)
        desk.pass(5 * Self.second)
        #expect(desk.reclaimed.count == 2 && desk.notices == [.reclaimLimit(2)])
        #expect(
            desk.lowMemoryWarnings.isEmpty && !desk.machine.pressure.hasEnded(for: PressureDesk.everybody))
        desk.setAll(PressureDesk.short)
        desk.trigger()
        try endAll(&desk)
        desk.pass(5 * Self.second)
        #expect(desk.reclaimed.count == 4 && desk.lowMemoryWarnings == [.medium])
    }

    @Test("a slice that has reached its limit of ends does not block another slice")
    func bothSlices() throws {
        let other = PressureSource(path: "/slice/1000", user: 1000)
        var desk = PressureDesk(sources: [other, Self.slice]) { $0.pressure.killsPerEvent = 1 }
        let mine = try [desk.held(60 << 20), desk.held(50 << 20)]
        let theirs = try [desk.held(60 << 20, user: 1001), desk.held(50 << 20, user: 1001)]
        desk.runShort()
        try endAll(&desk)
        #expect(desk.reclaimed == [mine[0], theirs[0]])
    }

    @Test("a slice whose trigger fires first does not decide alone who is ended")
    func firstTrigger() throws {
        var desk = PressureDesk(sources: [PressureDesk.everybody, Self.slice])
        let mine = try desk.held(60 << 20)
        _ = try desk.held(10 << 20, user: 1001)
        desk.setAll(PressureDesk.short)
        desk.trigger(of: Self.slice)
        desk.pass(Self.second)
        #expect(desk.reclaimed.first == mine)
    }

    @Test("the slices of users do not multiply the limit of ends, and a spared application does not count")
    func sameMemory() throws {
        var desk = PressureDesk(sources: [PressureDesk.everybody, Self.slice]) {
            $0.pressure.killsPerEvent = 2
        }
        for _ in 0..<6 { _ = try desk.held(user: 1001) }
        desk.runShort()
        let spared = try #require(desk.reclaimed.first)
        desk.handle(.spared(spared, "it runs again"))
        for _ in 0..<3 {
            try endAll(&desk)
            desk.pass(Self.second)
            for source in [PressureDesk.everybody, Self.slice] { desk.trigger(.critical, of: source) }
        }
        #expect(desk.reclaimed.count == 3 && desk.notices.contains(.reclaimLimit(2)))
        // The event is over, and the next one begins.
        desk.calmDown()
        desk.runShort()
        try endAll(&desk)
        desk.pass(Self.second)
        #expect(desk.reclaimed.count == 5)
    }

    @Test("for a part of the machine only its own members are ended and paged out, once they are known")
    func part() throws {
        var desk = PressureDesk(sources: [Self.part])
        desk.memory[Self.part]?.swapTotal = 1 << 30
        let outside = try desk.held(200 << 20)
        let inside = try desk.held(20 << 20)
        let running = try desk.background()
        desk.runShort()
        desk.pass(Self.second)
        #expect(desk.warned.first == running && desk.machine.memoryPressure == .critical)
        #expect(desk.reclaimed.isEmpty && desk.willReclaim.isEmpty && pagedOut(desk).isEmpty)
        desk.members = [Self.part: [inside]]
        desk.pass(10 * Self.second)
        #expect(desk.reclaimed == [inside])
        try endAll(&desk)
        desk.pass(10 * Self.second)
        #expect(desk.reclaimed == [inside] && desk.willReclaim.isEmpty && pagedOut(desk) == [inside])
        #expect(desk.desk.state(outside) == .suspended)
    }

    private func pagedOut(_ desk: PressureDesk) -> [ApplicationNumber] {
        desk.effects.compactMap { if case .pageOut(let number, _) = $0 { number } else { nil } }
    }
}

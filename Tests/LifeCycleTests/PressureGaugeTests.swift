import AppStateContract
import TestSupport
import Testing

@testable import LifeCycle

/// A gauge, its memory, and a clock.
struct GaugeDesk {
    var gauge = PressureGauge()
    var settings = PressureSettings()
    var now: Microseconds = 50_000_000
    var available: UInt64 = PressureDesk.ample
    var total: UInt64 = PressureDesk.total
    var perCPU: UInt64 = 0
    var swapTotal: UInt64 = 0
    var swapFree: UInt64 = 0
    var isLimited = false
    var samples = 0
    /// Every change of the level.
    var changes: [(time: Microseconds, from: MemoryPressure, to: MemoryPressure)] = []

    mutating func trigger(_ level: MemoryPressure = .warning) { gauge.triggered(level, at: now) }

    mutating func sample() {
        let before = gauge.level
        gauge.update(
            MemorySample(
                available: available, total: total, swapTotal: swapTotal, swapFree: swapFree, perCPU: perCPU,
                isLimited: isLimited), at: now, settings)
        samples += 1
        if gauge.level != before { changes.append((now, before, gauge.level)) }
    }

    /// Takes a sample whenever the gauge wants one; `change` sets the memory before each.
    mutating func pass(_ span: Microseconds, _ change: (inout GaugeDesk) -> Void = { _ in }) {
        let end = now + span
        while let next = gauge.nextReading, next <= end {
            now = max(now, next)
            change(&self)
            sample()
        }
        now = end
    }

    /// Changes less than 2 s after the previous one, except rises to critical.
    var hasty: [String] {
        zip(changes, changes.dropFirst()).compactMap { before, change in
            guard change.time - before.time < PressureGauge.leastDwell, change.to != .critical else {
                return nil
            }
            return "\(before.to) at \(before.time), \(change.to) at \(change.time)"
        }
    }
}

/// When memory counts as short, and when the gauge looks at it (§ 6).
@Suite("Pressure gauge")
struct PressureGaugeTests {
    private static let second: Microseconds = 1_000_000
    private static let line = PressureDesk.line

    @Test("as long as enough memory is left, only an alarm is set, and no time to read again")
    func quiet() {
        var desk = GaugeDesk()
        #expect(desk.gauge.nextReading == nil && !desk.gauge.isEpisodeOpen)
        desk.sample()
        #expect(desk.gauge.nextReading == nil && !desk.gauge.isEpisodeOpen && desk.gauge.alarm != nil)
    }

    @Test("a trigger opens an episode; the reading that comes with it decides the level")
    func opens() {
        var desk = GaugeDesk()
        desk.sample()
        desk.trigger()
        #expect(desk.gauge.isEpisodeOpen && desk.gauge.level == .normal && desk.gauge.alarm == nil)
        desk.sample()
        #expect(desk.gauge.level == .warning)
    }

    @Test(
        "critical begins below the line: 5 %, at most 512 MiB, or a number of bytes, at most half the total",
        arguments: [
            (1 << 30, PressureSettings.Amount.share(500), 53_687_091), (16 << 30, .share(500), 512 << 20),
            (200 << 20, .share(500), 10 << 20), (1 << 30, .share(10_000), 512 << 20),
            (16 << 30, .bytes(1 << 30), 1 << 30), (1 << 30, .bytes(100 << 20), 100 << 20),
            (1 << 30, .share(1), 107_374), (.max, .share(500), 512 << 20),
            (1 << 30, .bytes(8_388_608 << 40), 512 << 20), (1 << 30, .bytes(.max), 512 << 20),
            (1 << 20, .share(10_000), 512 << 10),
        ] as [(UInt64, PressureSettings.Amount, UInt64)])
    func line(_ total: UInt64, _ amount: PressureSettings.Amount, _ line: UInt64) {
        #expect(amount.bytes(of: total) == line)
        for (available, level) in [(line, MemoryPressure.warning), (line - 1, .critical)] {
            var desk = GaugeDesk()
            desk.settings.criticalAvailable = amount
            desk.total = total
            desk.available = available
            desk.trigger()
            desk.sample()
            #expect(desk.gauge.level == level, "\(available)")
        }
    }

    @Test("a full stall is critical for its window, however much memory is available")
    func stalled() {
        var desk = GaugeDesk()
        desk.trigger(.critical)
        desk.sample()
        #expect(desk.gauge.level == .critical)
        desk.pass(10 * Self.second)
        #expect(desk.changes.map(\.to).first == .critical && desk.gauge.level == .normal)
    }

    @Test(
        "a full stall asks for one end if little memory is left, or less swap and memory, or in a limited source"
    )
    func stalledRelief() {
        func wants(_ change: (inout GaugeDesk) -> Void) -> Bool {
            var desk = GaugeDesk()
            change(&desk)
            desk.trigger(.critical)
            desk.sample()
            #expect(desk.gauge.level == .critical)
            let wants = desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: false, desk.settings)
            desk.gauge.relieved()
            #expect(!desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: false, desk.settings))
            return wants
        }
        #expect(!wants { $0.available = PressureDesk.ample })
        #expect(!wants { $0.available = Self.line * 2 })
        #expect(wants { $0.available = Self.line * 3 / 2 })
        #expect(wants { $0.isLimited = true })
        for (free, isWanted) in [(1_000, false), (110, false), (90, true), (0, true)] as [(UInt64, Bool)] {
            for (available, isShort) in [(Self.line * 4 - 1, true), (Self.line * 4, false)] {
                let isRelieved = wants {
                    $0.available = available
                    $0.swapTotal = 1_000 << 20
                    $0.swapFree = free << 20
                }
                #expect(isRelieved == (isWanted && isShort), "\(free) MiB of swap, \(available)")
            }
        }
    }

    @Test("the gauge samples more often near the line, every 5 to 100 ms")
    func faster() {
        var desk = GaugeDesk()
        desk.available = 400 << 20
        desk.trigger()
        var pauses: [Microseconds] = []
        let begin = desk.now
        while desk.available > Self.line {
            desk.sample()
            guard let next = desk.gauge.nextReading else { break }
            pauses.append(next - desk.now)
            desk.now = next
            // 80 MiB a second, as in facts.md.
            let fallen = UInt64(Double(next - begin) * 83.886080)
            desk.available = (400 << 20) - min(fallen, 400 << 20)
        }
        #expect(pauses.count > 40)
        #expect(pauses == pauses.sorted(by: >), "\(pauses)")
        #expect(pauses.first == 100_000 && pauses.last == 5_000)
        // The gauge noticed before much of the memory was gone.
        #expect(Self.line - desk.available < 1 << 20)
        desk.sample()
        #expect(desk.gauge.level == .critical)
    }

    @Test("the level rises to critical at once, however recently it rose to warning")
    func risesAtOnce() {
        var desk = GaugeDesk()
        desk.trigger()
        desk.sample()
        desk.now += 1
        desk.available = Self.line - 1
        desk.sample()
        #expect(desk.gauge.level == .critical)
        desk.now += 1
        desk.available = PressureDesk.ample
        desk.sample()
        #expect(desk.gauge.level == .critical)
    }

    @Test("the level falls after 2 s without a reason, and each new reason restarts them")
    func falls() {
        var desk = GaugeDesk()
        desk.available = Self.line - 1
        desk.trigger()
        desk.pass(5 * Self.second)
        #expect(desk.gauge.level == .critical)
        desk.available = Self.line * 3 / 2
        desk.sample()
        desk.pass(1_900_000)
        #expect(desk.gauge.level == .critical)
        // Above the line, but by less than a quarter of it.
        desk.available = Self.line * 9 / 8
        desk.sample()
        desk.available = Self.line * 3 / 2
        desk.sample()
        desk.pass(1_900_000)
        #expect(desk.gauge.level == .critical)
        desk.pass(300_000)
        #expect(desk.gauge.level == .warning)
    }

    @Test("an episode ends only when both the triggers and the memory have recovered")
    func ends() {
        var desk = GaugeDesk()
        desk.trigger()
        for _ in 0..<30 {
            desk.pass(Self.second)
            desk.trigger()
        }
        #expect(desk.gauge.level == .warning && desk.gauge.isEpisodeOpen)
        desk.available = Self.line * 2 - 8
        desk.pass(30 * Self.second)
        #expect(desk.gauge.level == .warning && desk.gauge.isEpisodeOpen)
        desk.available = Self.line * 2
        desk.pass(10 * Self.second)
        #expect(desk.gauge.level == .normal && !desk.gauge.isEpisodeOpen)
        #expect(desk.gauge.nextReading == nil && desk.gauge.sample == nil)
        #expect(desk.changes.map(\.to) == [.warning, .normal])
    }

    @Test("two level changes are at least 2 s apart, except for a rise to critical")
    func neverFlaps() {
        let seed = Generator.chosenSeed
        var generator = Generator(seed: seed)
        for round in 0..<200 {
            var desk = GaugeDesk()
            for _ in 0..<100 {
                switch Int.random(in: 0..<5, using: &generator) {
                case 0: desk.trigger(.warning)
                case 1: desk.trigger(.critical)
                default: desk.available = UInt64.random(in: 0...(Self.line * 4), using: &generator)
                }
                let span = Microseconds.random(in: 0...1_500_000, using: &generator)
                desk.pass(generator.chance(20) ? 4 * span : span)
            }
            #expect(desk.hasty.isEmpty, "APPSTATED_SEED=\(seed), round \(round)")
            desk.available = PressureDesk.ample
            desk.pass(20 * Self.second)
            #expect(!desk.gauge.isEpisodeOpen && desk.gauge.level == .normal, "APPSTATED_SEED=\(seed)")
        }
    }
}

/// An episode without a stall: the kernel reports that memory was taken, and the gauge looks at it.
@Suite("Pressure alarm")
struct PressureAlarmTests {
    @Test("far from the line the next look comes when half of the distance is used; near it an episode opens")
    func halves() throws {
        var gauge = PressureGauge()
        let settings = PressureSettings()
        var available = PressureDesk.ample
        var looks = 0
        func read() -> UInt64? {
            gauge.update(
                MemorySample(available: available, total: PressureDesk.total, swapTotal: 0), at: 1, settings)
            return gauge.alarm
        }
        while let bytes = read() {
            #expect(bytes <= max((available - PressureDesk.line) / 2, 8 << 20))
            #expect(available - min(available, bytes) >= PressureDesk.line)
            available -= bytes
            looks += 1
        }
        // Each look halves what is left: few looks are needed, however much there was.
        #expect((3...10).contains(looks))
        #expect(gauge.isEpisodeOpen && gauge.level == .warning)
    }

    @Test("memory that cannot be read is read again, in an episode soon and otherwise when some was taken")
    func unreadable() {
        var desk = PressureDesk()
        let unread = Fact.memory(MemoryReadings([PressureDesk.everybody: MemoryReadings.Reading(nil)]))
        desk.handle(unread)
        #expect(desk.machine.memoryAlarm == 16 << 20 && desk.isIdle)
        desk.trigger()
        desk.isDeaf = true
        desk.handle(unread)
        #expect(desk.machine.nextReading == desk.now + 100_000)
    }

    @Test("low memory alone ends no application; stalls, exhaustion and the loss of most of it do")
    func relief() {
        var desk = GaugeDesk()
        let line = PressureDesk.line
        func wants(_ desk: GaugeDesk) -> Bool {
            desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: false, desk.settings)
        }
        desk.trigger()
        desk.available = line / 4 * 3
        desk.pass(10_000_000)
        #expect(desk.gauge.level == .critical && !wants(desk))
        desk.trigger()
        desk.sample()
        #expect(wants(desk))
        desk.pass(10_000_000)
        #expect(!wants(desk))
        // Slowly: some 5 MiB a second.
        desk.pass(10_000_000) { $0.available = max($0.available - 100 << 10, line / 2) }
        #expect(desk.available == line / 2 && !wants(desk))
        desk.available = line / 5 * 2 - 1
        desk.sample()
        #expect(wants(desk))
    }

    @Test("below the line, a warning of the machine ends an application only if a process waits")
    func kernelThreads() {
        let line = PressureDesk.line
        /// What happens in the 100 ms after the trigger.
        func wants(searches: UInt64?, front: UInt64? = nil) -> Bool {
            var gauge = PressureGauge()
            let settings = PressureSettings()
            var sample = MemorySample(
                available: line / 4 * 3, total: PressureDesk.total, swapTotal: 0,
                searches: searches.map { _ in 70 },
                files: FileCache(cached: 0, evicted: 0, reclaimed: 0, refaulted: 0),
                front: front.map { _ in
                    FrontMemory(ApplicationNumber(1), cached: 0, refaulted: 0, waited: 0)
                })
            gauge.triggered(.warning, at: 1_000_000)
            gauge.update(sample, at: 1_000_000, settings)
            sample.searches? += searches ?? 0
            for step in 1...5 as ClosedRange<UInt64> {
                sample.front?.waited += front ?? 0
                gauge.update(sample, at: 1_000_000 + step * 20_000, settings)
            }
            #expect(gauge.level == .critical)
            return gauge.wantsRelief(at: 1_100_000, expectedFree: 0, hasEnded: false, settings)
        }
        #expect(!wants(searches: 0), "only the kernel's own search")
        #expect(wants(searches: 1), "a process frees memory itself")
        #expect(wants(searches: nil), "a cgroup's trigger counts no kernel threads")
        #expect(wants(searches: 0, front: 2_000), "the application in front waits a tenth of the time")
        #expect(!wants(searches: 0, front: 0))
    }

    @Test("the first end of an event comes earlier than the next, because its duration is still unknown")
    func firstEnd() {
        var desk = GaugeDesk()
        desk.trigger()
        // 20 MiB a second, until some MiB below the line.
        desk.available = PressureDesk.line + 36 << 20
        for _ in 0..<100 {
            desk.now += 20_000
            desk.available -= 400 << 10
            desk.sample()
        }
        #expect(desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: false, desk.settings))
        #expect(!desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: true, desk.settings))
    }

    @Test(
        "memory cached per CPU counts as available once an application has ended, since that memory is there")
    func perCPU() {
        var desk = GaugeDesk()
        desk.available = PressureDesk.line / 5
        desk.perCPU = PressureDesk.line / 5 + 1
        desk.trigger()
        desk.sample()
        desk.pass(5_000_000)
        #expect(desk.gauge.level == .critical)
        #expect(desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: false, desk.settings))
        #expect(!desk.gauge.wantsRelief(at: desk.now, expectedFree: 0, hasEnded: true, desk.settings))
    }
}

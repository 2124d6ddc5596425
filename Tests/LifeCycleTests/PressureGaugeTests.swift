import AppStateContract
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
        gauge.willSample()
        gauge.sampled(
            MemorySample(
                available: available, total: total, swapTotal: swapTotal, swapFree: swapFree, perCPU: perCPU,
                isLimited: isLimited), at: now, settings)
        samples += 1
        if gauge.level != before { changes.append((now, before, gauge.level)) }
    }

    /// Samples when it is wanted; `change` says how the memory is by then.
    mutating func pass(_ span: Microseconds, _ change: (inout GaugeDesk) -> Void = { _ in }) {
        let end = now + span
        while let next = gauge.nextSample, next <= end {
            now = max(now, next)
            change(&self)
            sample()
        }
        now = end
    }

    /// Changes that came less than 2 s after the one before, and did not rise to critical.
    var hasty: [String] {
        zip(changes, changes.dropFirst()).compactMap { before, change in
            guard change.time - before.time < PressureGauge.rest, change.to != .critical else { return nil }
            return "\(before.to) at \(before.time), \(change.to) at \(change.time)"
        }
    }
}

/// When memory counts as short, and when it is looked at (§ 6).
@Suite("Pressure gauge")
struct PressureGaugeTests {
    private static let second: Microseconds = 1_000_000
    private static let line = PressureDesk.line

    @Test("nothing is sampled before a trigger, and a sample that nobody wanted says nothing")
    func quiet() {
        var desk = GaugeDesk()
        #expect(desk.gauge.nextSample == nil && !desk.gauge.isEpisodeOpen)
        desk.available = 0
        desk.sample()
        #expect(desk.gauge == PressureGauge())
    }

    @Test("a trigger opens an episode and wants a sample at once; a sample under way is not wanted again")
    func opens() {
        var desk = GaugeDesk()
        desk.trigger()
        #expect(desk.gauge.isEpisodeOpen && desk.gauge.nextSample == desk.now)
        #expect(desk.gauge.level == .normal)
        desk.gauge.willSample()
        #expect(desk.gauge.nextSample == nil)
        desk.sample()
        #expect(desk.gauge.level == .warning)
    }

    @Test(
        "critical is less than the line: 5 %, at most 512 MiB, or so many bytes, and never more than half",
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

    @Test("a full stall is critical however much memory there is, for its window")
    func stalled() {
        var desk = GaugeDesk()
        desk.trigger(.critical)
        desk.sample()
        #expect(desk.gauge.level == .critical)
        desk.pass(10 * Self.second)
        #expect(desk.changes.map(\.to).first == .critical && desk.gauge.level == .normal)
    }

    @Test(
        "a full stall is worth an end once, where less than twice the line is left, swap is used up, or of a limit"
    )
    func stalledRelief() {
        func wants(_ change: (inout GaugeDesk) -> Void) -> Bool {
            var desk = GaugeDesk()
            change(&desk)
            desk.trigger(.critical)
            desk.sample()
            #expect(desk.gauge.level == .critical)
            let wants = desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: false, desk.settings)
            desk.gauge.relieved()
            #expect(!desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: false, desk.settings))
            return wants
        }
        #expect(!wants { $0.available = PressureDesk.ample })
        #expect(!wants { $0.available = Self.line * 2 })
        #expect(wants { $0.available = Self.line * 3 / 2 })
        #expect(wants { $0.isLimited = true })
        for (free, isWanted) in [(1_000, false), (110, false), (90, true), (0, true)] as [(UInt64, Bool)] {
            let isRelieved = wants {
                $0.swapTotal = 1_000 << 20
                $0.swapFree = free << 20
            }
            #expect(isRelieved == isWanted, "\(free) MiB of swap")
        }
    }

    @Test("the nearer the line, the more often it is sampled: between 5 and 100 ms")
    func faster() {
        var desk = GaugeDesk()
        desk.available = 400 << 20
        desk.trigger()
        var pauses: [Microseconds] = []
        let begin = desk.now
        while desk.available > Self.line {
            desk.sample()
            guard let next = desk.gauge.nextSample else { break }
            pauses.append(next - desk.now)
            desk.now = next
            // 80 MiB a second, as facts have it.
            let fallen = UInt64(Double(next - begin) * 83.886080)
            desk.available = (400 << 20) - min(fallen, 400 << 20)
        }
        #expect(pauses.count > 40)
        #expect(pauses == pauses.sorted(by: >), "\(pauses)")
        #expect(pauses.first == 100_000 && pauses.last == 5_000)
        // It was seen before much of it was gone.
        #expect(Self.line - desk.available < 1 << 20)
        desk.sample()
        #expect(desk.gauge.level == .critical)
    }

    @Test("it rises to critical at once, however short ago it rose to warning")
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

    @Test("it rises to warning not before 2 s after it fell, and then it does")
    func risesLate() throws {
        var desk = GaugeDesk()
        desk.trigger()
        desk.pass(10 * Self.second)
        let fell = try #require(desk.changes.last)
        #expect(fell.to == .normal && desk.gauge.nextSample == nil)
        desk.now = fell.time + 500_000
        desk.trigger()
        desk.pass(1_499_999)
        #expect(desk.gauge.level == .normal && desk.gauge.isEpisodeOpen)
        desk.pass(200_000)
        #expect(desk.gauge.level == .warning && desk.hasty.isEmpty)
    }

    @Test("it falls after 2 s without a reason, and one reason more begins them anew")
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
        // Above the line, and not by a quarter of it.
        desk.available = Self.line * 9 / 8
        desk.sample()
        desk.available = Self.line * 3 / 2
        desk.sample()
        desk.pass(1_900_000)
        #expect(desk.gauge.level == .critical)
        desk.pass(300_000)
        #expect(desk.gauge.level == .warning)
    }

    @Test("from critical it falls to normal only where 2 s long nothing spoke for warning")
    func fallsByOne() {
        var desk = GaugeDesk()
        desk.available = Self.line - 1
        desk.trigger()
        desk.pass(10 * Self.second)
        desk.available = Self.line * 3 / 2
        desk.sample()
        desk.pass(1_950_000)
        #expect(desk.gauge.level == .critical)
        desk.available = PressureDesk.ample
        desk.pass(150_000)
        #expect(desk.gauge.level == .warning)
        desk.pass(3 * Self.second)
        #expect(desk.gauge.level == .normal && !desk.gauge.isEpisodeOpen)
    }

    @Test("an episode ends when triggers and memory have both recovered, not when one has")
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
        #expect(desk.gauge.nextSample == nil && desk.gauge.sample == nil)
        #expect(desk.changes.map(\.to) == [.warning, .normal])
    }

    @Test("memory that falls slowly keeps it open; once it stands, the episode ends")
    func slowFall() {
        var desk = GaugeDesk()
        desk.available = Self.line * 3
        desk.trigger()
        let begin = desk.now
        // 10 MB a second: at first the line is 10.7 s away.
        desk.pass(8 * Self.second) { $0.available = Self.line * 3 - 10 * ($0.now - begin) }
        #expect(desk.available > Self.line * 3 / 2 - 1_000_000 && desk.gauge.isEpisodeOpen)
        #expect(desk.changes.map(\.to) == [.warning])
        desk.available = Self.line * 5 / 2
        desk.pass(20 * Self.second)
        #expect(!desk.gauge.isEpisodeOpen)
    }

    @Test("an episode that lasts is looked at four times a second, no more")
    func patience() {
        var desk = GaugeDesk()
        desk.available = Self.line * 3 / 2
        desk.trigger()
        desk.pass(20 * Self.second)
        desk.samples = 0
        desk.pass(60 * Self.second)
        #expect(desk.samples == 240)
    }

    @Test(
        "the same below the line; it is looked at oftener when it falls, and oftenest when it would not last")
    func patienceInNeed() {
        var desk = GaugeDesk()
        desk.available = Self.line / 2
        desk.trigger()
        desk.pass(20 * Self.second)
        desk.samples = 0
        desk.pass(60 * Self.second)
        #expect(desk.samples == 240 && desk.gauge.level == .critical)
        // Some 400 KiB a second, then 40 MiB.
        for (fallen, pause) in [(100 << 10, 50_000), (10 << 20, 20_000)] as [(UInt64, Microseconds)] {
            desk.now += 250_000
            desk.available -= fallen
            desk.sample()
            #expect(desk.gauge.nextSample == desk.now + pause)
        }
        // What it was does not count for ever.
        desk.pass(20 * Self.second)
        #expect(desk.gauge.nextSample.map { $0 - desk.now <= 250_000 } == true)
        desk.samples = 0
        desk.pass(60 * Self.second)
        #expect(desk.samples == 240)
    }

    @Test(
        "where an episode ends, none begins",
        arguments: [1 << 10, 1 << 20, 10 << 20, 60 << 20, 700 << 20, 1_000 << 20] as [UInt64])
    func noOverlap(_ line: UInt64) {
        for total in [20 << 20, 100 << 20, 1 << 30] as [UInt64] {
            for share in 0...100 as ClosedRange<UInt64> {
                var desk = GaugeDesk()
                desk.settings.criticalAvailable = .bytes(line)
                desk.total = total
                desk.available = total / 100 * share
                desk.trigger()
                desk.pass(30 * Self.second)
                guard !desk.gauge.isEpisodeOpen else { continue }
                let sample = MemorySample(available: desk.available, total: total, swapTotal: 0)
                #expect(
                    desk.gauge.looked(at: sample, at: desk.now, desk.settings) != nil,
                    "\(share) % of \(total)")
            }
        }
    }

    @Test("an episode ends, too, where half of the memory is below the line")
    func greatLine() {
        var desk = GaugeDesk()
        desk.settings.criticalAvailable = .bytes(700 << 20)
        desk.available = 500 << 20
        desk.trigger()
        desk.pass(Self.second)
        #expect(desk.gauge.level == .critical)
        desk.available = 1_000 << 20
        desk.pass(20 * Self.second)
        #expect(!desk.gauge.isEpisodeOpen)
    }

    @Test("whatever memory and triggers do, no two changes are within 2 s but for a rise to critical")
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

/// An episode without a stall: the kernel tells that memory was taken, and it is looked at.
@Suite("Pressure alarm")
struct PressureAlarmTests {
    @Test("far from the line half of the way may be taken before the next look; near it an episode opens")
    func halves() throws {
        var gauge = PressureGauge()
        let settings = PressureSettings()
        var available = PressureDesk.ample
        var looks = 0
        while let bytes = gauge.looked(
            at: MemorySample(available: available, total: PressureDesk.total, swapTotal: 0), at: 1, settings)
        {
            #expect(bytes <= max((available - PressureDesk.line) / 2, 8 << 20))
            #expect(available - min(available, bytes) >= PressureDesk.line)
            available -= bytes
            looks += 1
        }
        // Each look halves what is left: few, however much there was.
        #expect((3...10).contains(looks))
        #expect(gauge.isEpisodeOpen && gauge.nextSample == 1)
    }

    @Test("a source that is new is looked at, and again when memory was taken; open, it needs no alarm")
    func armed() {
        var desk = PressureDesk()
        #expect(desk.effects.contains { if case .alarmMemory(_, after: .some) = $0 { true } else { false } })
        desk.forget()
        desk.take(.memoryTaken(PressureDesk.everybody))
        #expect(desk.effects.first == .sampleMemory(PressureDesk.everybody))
        #expect(desk.desk.machine.nextDeadline() == nil)
        desk.set(PressureDesk.line)
        desk.forget()
        desk.take(.memoryTaken(PressureDesk.everybody))
        #expect(desk.effects.contains(.alarmMemory(PressureDesk.everybody, after: nil)))
        #expect(desk.machine.memoryPressure == .warning && desk.desk.machine.nextDeadline() != nil)
        desk.calmDown()
        #expect(desk.machine.memoryPressure == .normal && desk.desk.machine.nextDeadline() == nil)
        guard case .alarmMemory(_, after: .some)? = desk.effects.last else {
            Issue.record("no alarm after the episode: \(desk.effects.suffix(3))")
            return
        }
    }

    @Test("sources that are told again are looked at: who watches them anew has forgotten the alarm")
    func armedAgain() {
        var desk = PressureDesk()
        desk.forget()
        desk.take(.pressureSources([PressureDesk.everybody]))
        #expect(desk.effects.contains { if case .alarmMemory(_, after: .some) = $0 { true } else { false } })
    }

    @Test("memory that only is low costs nobody; waiting for it, running out of it, or most of it gone does")
    func relief() {
        var desk = GaugeDesk()
        let line = PressureDesk.line
        func wants(_ desk: GaugeDesk) -> Bool {
            desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: false, desk.settings)
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

    @Test("the first end of an event comes earlier than the next: how long one takes is known by then")
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
        #expect(desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: false, desk.settings))
        #expect(!desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: true, desk.settings))
    }

    @Test("what CPUs keep for themselves counts once somebody has ended: there it is that his memory lies")
    func perCPU() {
        var desk = GaugeDesk()
        desk.available = PressureDesk.line / 5
        desk.perCPU = PressureDesk.line / 5 + 1
        desk.trigger()
        desk.sample()
        desk.pass(5_000_000)
        #expect(desk.gauge.level == .critical)
        #expect(desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: false, desk.settings))
        #expect(!desk.gauge.wantsRelief(at: desk.now, promised: 0, hasEnded: true, desk.settings))
    }
}

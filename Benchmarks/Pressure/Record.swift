import Glibc

/// The measurements of one event. All memory is allocated before it begins.
struct Record {
    private(set) var start = Meters.Reading()
    var quietBegan: UInt64 = 0
    var killsBefore: UInt64 = 0
    var killsAfter: UInt64 = 0

    private static let most = 8192
    private let names: [String]
    private var deaths: [UInt64]
    private var readings: [Meters.Reading] = []
    private var someTrigger: UInt64 = 0
    private var fullTrigger: UInt64 = 0

    init(names: [String]) {
        self.names = names
        deaths = Array(repeating: 0, count: names.count)
        // Room for a minute of samples, and for those that triggers and deaths cause. Writing to it makes it resident.
        readings = Array(repeating: Meters.Reading(), count: Self.most)
        readings.removeAll(keepingCapacity: true)
    }

    mutating func began(_ reading: Meters.Reading) { start = reading }

    mutating func add(_ reading: Meters.Reading) {
        if readings.count < Self.most { readings.append(reading) }
    }

    mutating func died(_ index: Int, at time: UInt64) { deaths[index] = time }

    mutating func triggered(full: Bool, at time: UInt64) {
        if full {
            if fullTrigger == 0 { fullTrigger = time }
        } else if someTrigger == 0 {
            someTrigger = time
        }
    }

    /// The time at which the process ended, in microseconds; nil if it still runs.
    func end(of name: String) -> UInt64? {
        guard let index = names.firstIndex(of: name), deaths[index] != 0 else { return nil }
        return deaths[index]
    }

    // MARK: After the event

    /// Prints one `key=value` a line. Times of the event are milliseconds since it began, memory is KiB.
    func report(growing: Bool, line percent: UInt64?, board: Board) {
        let death = end(of: "front")
        let grown = growing && board[.grown] != 0 ? board[.grown] : nil
        let last = readings.last ?? start
        let end = (growing ? grown : nil) ?? death ?? last.time
        line("survived", death == nil ? 1 : 0)
        line("grown_ms", milliseconds(grown))
        line("front_died_ms", milliseconds(death))
        line("leak_died_ms", milliseconds(self.end(of: "leak")))
        line("touched_mib", board[.touched] >> 20)
        line("event_ms", milliseconds(end))
        latencies("quiet", board.latencies(from: quietBegan, to: start.time))
        latencies("front", board.latencies(from: start.time, to: end))
        line("worst", board.worst(from: start.time, to: end))
        line("refaulted_mib", (last.refaulted - start.refaulted) >> 20)
        line("refaulted_late_mib", (last.refaulted - (late ?? start).refaulted) >> 20)
        line("evicted_mib", (last.evicted - start.evicted) >> 20)
        line("some_ms", (last.some - start.some) / 1000)
        line("full_ms", (last.full - start.full) / 1000)
        line("available_start_kib", start.available)
        line("available_least_kib", readings.map(\.available).min() ?? 0)
        line("available_end_kib", last.available)
        line("needed", growing ? needed : 1)
        line("sleepers_ended", UInt64(sleepers.count))
        line("sleepers_ended_ms", sleepers.map { String(($0 - start.time) / 1000) }.joined(separator: ","))
        line("some_trigger_ms", milliseconds(someTrigger == 0 ? nil : someTrigger))
        line("full_trigger_ms", milliseconds(fullTrigger == 0 ? nil : fullTrigger))
        let crossed = crossing(of: percent)
        line("line_percent", percent.map(String.init) ?? "-")
        line("crossed_ms", milliseconds(crossed))
        line("freed_ms", milliseconds(crossed.flatMap(freed)))
        line("calm_ms", milliseconds(calm))
        line("kernel_kills", killsAfter - killsBefore)
        course()
    }

    /// For each quarter of a second: `at_MS=`, then MemAvailable in KiB, the stall of some and of all in milliseconds
    /// until then, file pages in memory, and those evicted and read back until then, in MiB.
    private func course() {
        var next: UInt64 = 0
        for reading in readings where reading.time >= next {
            next = reading.time + 250_000
            let stall = "\((reading.some - start.some) / 1000) \((reading.full - start.full) / 1000)"
            let files =
                "\(reading.cached >> 20) \((reading.evicted - start.evicted) >> 20) \((reading.refaulted - start.refaulted) >> 20)"
            line("at_\((reading.time - start.time) / 1000)", "\(reading.available) \(stall) \(files)")
        }
    }

    /// The sample 4 s before the end: half of the time that is watched after the growth.
    private var late: Meters.Reading? {
        guard let end = readings.last?.time else { return nil }
        return readings.first { $0.time + Watch.after / 2 >= end }
    }

    private var sleepers: [UInt64] {
        names.indices.filter { names[$0].hasPrefix("sleeper") && deaths[$0] != 0 }.map { deaths[$0] }.sorted()
    }

    /// The number of stopped applications that had to end to make room for the growth, given what was available before
    /// it.
    private var needed: UInt64 {
        let growth = UInt64(Front.growth) << 10
        let each = UInt64(Sleeper.usual) << 10
        return growth > start.available ? (growth - start.available + each - 1) / each : 0
    }

    /// The first time at which less than this percentage was available. For a guard without such a line, the time at
    /// which the first trigger fired.
    private func crossing(of percent: UInt64?) -> UInt64? {
        guard let percent else { return someTrigger == 0 ? nil : someTrigger }
        return readings.first { $0.available * 100 < $0.total * percent }?.time
    }

    /// The time at which the next of the scene's processes ended. A pidfd reports the end after the kernel has taken
    /// the memory back.
    private func freed(since crossing: UInt64) -> UInt64? {
        deaths.filter { $0 >= crossing }.min()
    }

    /// The end of the last second whose stall reached the first trigger's threshold.
    private var calm: UInt64? {
        var first = 0
        var found: UInt64?
        for reading in readings {
            while reading.time > readings[first].time + 1_000_000 { first += 1 }
            if reading.some - readings[first].some >= 70_000 { found = reading.time }
        }
        return found
    }

    private func milliseconds(_ time: UInt64?) -> String {
        time.map { String(($0 - min($0, start.time)) / 1000) } ?? "-"
    }

    private func latencies(_ whose: String, _ sorted: [UInt64]) {
        line("\(whose)_requests", UInt64(sorted.count))
        guard let most = sorted.last else { return }
        line("\(whose)_p50_us", sorted[sorted.count / 2])
        line("\(whose)_p99_us", sorted[sorted.count * 99 / 100])
        line("\(whose)_max_us", most)
    }

    private func line(_ key: String, _ value: some CustomStringConvertible) {
        print("\(key)=\(value)")
    }
}

/// Counts that the kernel has kept so far. The difference between two tallies shows how fast the counts grow.
struct Tally<Thing: Hashable & Sendable>: Sendable, Equatable {
    private let counts: [Thing: UInt64]
    /// CLOCK_MONOTONIC, in microseconds.
    private let time: UInt64

    var isEmpty: Bool { counts.isEmpty }

    /// - Parameter time: when the counting began or ended, CLOCK_MONOTONIC in microseconds; the same for both tallies.
    init(_ counts: [Thing: UInt64] = [:], at time: UInt64 = 0) { (self.counts, self.time) = (counts, time) }

    /// The growth per second since an earlier tally, over the things that both have counted.
    func rate(since earlier: Tally) -> Double {
        guard time > earlier.time else { return 0 }
        var sum: UInt64 = 0
        for (thing, now) in counts {
            if let before = earlier.counts[thing], now > before { sum += now - before }
        }
        return Double(sum) * 1_000_000 / Double(time - earlier.time)
    }
}

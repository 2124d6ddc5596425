import Glibc

/// Counts that the kernel has kept so far. The difference between two tallies shows how fast the counts grow.
struct Tally<Thing: Hashable & Sendable>: Sendable, Equatable {
    private let counts: [Thing: UInt64]
    /// CLOCK_MONOTONIC, in microseconds.
    private let time: UInt64

    /// - Parameter time: when the counting began or ended, CLOCK_MONOTONIC in microseconds; the same for both tallies.
    init(_ counts: [Thing: UInt64] = [:], at time: UInt64 = 0) { (self.counts, self.time) = (counts, time) }

    /// The growth per second since an earlier tally. What the earlier one has not counted is new.
    ///
    /// - Parameter span: microseconds. What was counted in a shorter time counts for this time.
    func rate(since earlier: Tally, over span: UInt64 = 0) -> Double {
        guard time > earlier.time else { return 0 }
        var sum: UInt64 = 0
        for (thing, now) in counts {
            let before = earlier.counts[thing] ?? 0
            if now > before { sum += now - before }
        }
        return Double(sum) * 1_000_000 / Double(max(time - earlier.time, span))
    }
}

/// How much processor time some processes have used so far, all their threads included.
public struct ProcessorTime: Sendable, Equatable {
    /// Nanoseconds by process.
    private let used: Tally<Int32>

    /// Processes that are gone count as having used nothing.
    public init(of processes: some Sequence<Int32>) {
        var used: [Int32: UInt64] = [:]
        for pid in processes {
            var clock = clockid_t()
            var now = timespec()
            if clock_getcpuclockid(pid, &clock) == 0, clock_gettime(clock, &now) == 0 {
                used[pid] = UInt64(now.tv_sec) * 1_000_000_000 + UInt64(now.tv_nsec)
            }
        }
        self.used = Tally(used, at: Clock.monotonicMicroseconds)
    }

    /// How many processors the processes, those that are new included, have used on average since an earlier sample: 1
    /// for a process that computes all the time.
    public func processors(since earlier: ProcessorTime) -> Double {
        used.rate(since: earlier.used) / 1_000_000_000
    }
}

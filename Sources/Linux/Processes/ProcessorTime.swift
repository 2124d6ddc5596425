import Glibc

/// How much processor time some processes have used so far, all their threads included.
public struct ProcessorTime: Sendable, Equatable {
    /// Nanoseconds by process.
    private let used: [Int32: UInt64]
    /// CLOCK_MONOTONIC, in microseconds.
    private let time: UInt64

    /// Processes that are gone count as having used nothing.
    ///
    /// - Parameter rest: called repeatedly: for each process the kernel adds up the times of its threads, and there may
    ///   be thousands.
    public init(of processes: some Sequence<Int32>, rest: () -> Void = {}) {
        var used: [Int32: UInt64] = [:]
        for pid in processes {
            var clock = clockid_t()
            var now = timespec()
            if clock_getcpuclockid(pid, &clock) == 0, clock_gettime(clock, &now) == 0 {
                used[pid] = UInt64(now.tv_sec) * 1_000_000_000 + UInt64(now.tv_nsec)
            }
            rest()
        }
        self.used = used
        time = Clock.monotonicMicroseconds
    }

    /// How many processors the processes that both looks have seen have used on average since an earlier look: 1 for one
    /// that computes all the time.
    public func processors(since earlier: ProcessorTime) -> Double {
        guard time > earlier.time else { return 0 }
        var sum: UInt64 = 0
        for (pid, now) in used {
            if let before = earlier.used[pid], now > before { sum += now - before }
        }
        return Double(sum) / 1_000 / Double(time - earlier.time)
    }
}

import Glibc

/// The kernel's clocks.
public enum Clock {
    /// Microseconds of `CLOCK_MONOTONIC` (clock_gettime(2)): never set back, stands still in system sleep.
    public static var monotonicMicroseconds: UInt64 {
        var time = timespec()
        // Cannot fail: the clock exists and the address is ours.
        _ = clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1_000
    }
}

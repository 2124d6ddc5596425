import Glibc

/// The kernel's clocks.
public enum Clock {
    /// Microseconds of `CLOCK_MONOTONIC` (clock_gettime(2)): never set back, does not advance during system sleep.
    public static var monotonicMicroseconds: UInt64 { microseconds(of: CLOCK_MONOTONIC) }

    /// Microseconds of `CLOCK_BOOTTIME` (clock_gettime(2)): the same, but advances during system sleep.
    public static var bootMicroseconds: UInt64 { microseconds(of: CLOCK_BOOTTIME) }

    /// Microseconds of `CLOCK_REALTIME` since 1970 (clock_gettime(2)): the wall clock, which can be set.
    public static var realMicroseconds: UInt64 { microseconds(of: CLOCK_REALTIME) }

    private static func microseconds(of clock: clockid_t) -> UInt64 {
        let time = time(of: clock)
        return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1_000
    }

    private static func time(of clock: clockid_t) -> timespec {
        var time = timespec()
        // Cannot fail: the clock exists and the address is ours.
        _ = clock_gettime(clock, &time)
        return time
    }
}

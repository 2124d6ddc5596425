import CLinux
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

/// A moment in the local time zone: localtime(3).
public struct LocalTime: Hashable, Sendable {
    /// Grows by one or more each day.
    public let day: Int
    /// Seconds east of UTC.
    public let offset: Int

    /// - Parameter moment: in seconds since 1970.
    public init(at moment: Int64) {
        var moment = time_t(moment)
        var fields = tm()
        localtime_r(&moment, &fields)
        day = Int(fields.tm_year) * 366 + Int(fields.tm_yday)
        offset = fields.tm_gmtoff
    }

    /// Reads the time zone as it is configured now (tzset(3)), for all later queries.
    public static func readZone() { tzset() }

    /// The first moment at which the day or the offset differs, in seconds since 1970. This is usually midnight; in
    /// zones where days do not begin at midnight, it is the moment that the zone defines.
    ///
    /// No day is longer than 25 hours. Where one is (a zone that moves across the date line), the result is 26 hours
    /// later.
    public static func nextChange(after moment: Int64) -> Int64 {
        let now = LocalTime(at: moment)
        var (same, other) = (moment, moment + 26 * 3_600)
        while other - same > 1 {
            let middle = same + (other - same) / 2
            if LocalTime(at: middle) == now { same = middle } else { other = middle }
        }
        return other
    }
}

/// Reports that a moment has come, or that the clock was set: a timer of CLOCK_REALTIME with TFD_TIMER_CANCEL_ON_SET
/// (timerfd_create(2)). Returning from system sleep counts as setting the clock.
public final class ClockTimer {
    private let timer: Descriptor

    /// Makes a timer that is not armed.
    public init() throws(KernelFailure) {
        let number = clinux_timerfd_create(O_CLOEXEC | O_NONBLOCK)
        guard number >= 0 else {
            throw KernelFailure(operation: "timerfd_create", subject: "CLOCK_REALTIME", errno: -number)
        }
        timer = Descriptor(owning: number)
    }

    /// Readable when there is something to report. Open while the timer lives.
    public var descriptor: Int32 { timer.rawValue }

    /// Waits for a moment, in seconds since 1970, and for the clock to be set.
    ///
    /// - Returns: false if the clock was set since the timer was last read: the moment may have been computed from a
    ///   wrong time.
    public func wait(for moment: Int64) throws(KernelFailure) -> Bool {
        let result = clinux_timerfd_arm(timer.rawValue, Int(moment))
        if result == -ECANCELED { return false }
        guard result >= 0 else {
            throw KernelFailure(operation: "timerfd_settime", subject: "CLOCK_REALTIME", errno: -result)
        }
        return true
    }

    /// Consumes the report, so that the next one can arrive.
    public func consume() {
        var count: UInt64 = 0
        // ECANCELED: the clock was set.
        _ = read(timer.rawValue, &count, 8)
    }
}

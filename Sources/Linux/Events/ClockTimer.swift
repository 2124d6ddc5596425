import CLinux
import Glibc

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
    public func take() {
        var count: UInt64 = 0
        // ECANCELED: the clock was set.
        _ = read(timer.rawValue, &count, 8)
    }
}

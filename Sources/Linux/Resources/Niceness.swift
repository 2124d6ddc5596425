import CLinux
import Glibc

/// The nice value of a thread, -20 (first) to 19 (last): setpriority(2).
///
/// POSIX gives it to processes; on Linux each thread has its own, which new threads and children inherit
/// (setpriority(2), "C library/kernel differences").
public enum Niceness {
    /// The values that the kernel accepts; it clamps others.
    public static let range: ClosedRange<Int32> = -20...19

    /// The nice value of a thread, by the thread's id. `ESRCH`: there is no such thread.
    public static func read(_ thread: Int32) throws(KernelFailure) -> Int32 {
        let result = clinux_getpriority(thread)
        guard result > 0 else {
            throw KernelFailure(operation: "getpriority", subject: "thread \(thread)", errno: -result)
        }
        return 20 - result
    }

    /// Changes a thread by its id, whoever owns it.
    ///
    /// `ESRCH`: it is gone. `EPERM`: it belongs to another user than ours and we lack `CAP_SYS_NICE`. `EACCES`: the
    /// value is lower than the present one and we lack `CAP_SYS_NICE` (its `RLIMIT_NICE` may allow some).
    static func set(_ value: Int32, _ thread: Int32) throws(KernelFailure) {
        let result = clinux_setpriority(thread, value)
        guard result >= 0 else {
            throw KernelFailure(
                operation: "setpriority \(value)", subject: "thread \(thread)", errno: -result)
        }
    }
}

import Glibc

/// The value that is added to a process's score before the kernel's OOM killer chooses:
/// `/proc/PID/oom_score_adj`, -1000 (never) to 1000 (first); 1000 corresponds to the whole memory. Children
/// inherit it.
///
/// A value lower than the one that a process with `CAP_SYS_RESOURCE` set last needs that capability (fs/proc/base.c,
/// `__set_oom_adj`). A process without it can raise a value and lower it again to that mark. A process with
/// it moves the mark with each write, including upwards: a process that was raised in this way can no longer
/// lower itself below the new value. Therefore appstated does not use the capability here.
public enum OOMScoreAdjustment {
    /// The values that the kernel accepts.
    public static let range: ClosedRange<Int32> = -1000...1000

    /// The value of a process, by its id. `ESRCH`: there is no such process.
    public static func read(_ pid: Int32, proc: Proc) throws(KernelFailure) -> Int32 {
        try proc.readOnce(pid, "oom_score_adj") { $0.signed32() }
    }

    /// Changes a process that is still `process` and wholly the owner's.
    ///
    /// `ESRCH`: it is gone or another. `EPERM`: it is not the owner's. `EACCES`: the file belongs to another user than
    /// ours and we lack `CAP_DAC_OVERRIDE`, or the value is too low without `CAP_SYS_RESOURCE`.
    public static func write(
        _ value: Int32, to process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        let path = proc.path(process.pid, "oom_score_adj")
        // Opened first: the open file stays with this process, and the check then shows its owner.
        let number = open(path, O_WRONLY | O_CLOEXEC)
        let failure = errno
        if number < 0, failure == ENOENT { throw proc.failure("open", process.pid, "oom_score_adj", failure) }
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: failure) }
        let file = Descriptor(owning: number)
        try proc.checkOwned(process, by: uid)
        try Files.write("\(value)", to: file, named: path)
    }
}

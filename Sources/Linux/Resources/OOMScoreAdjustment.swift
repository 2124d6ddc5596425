import Glibc

/// What is added to a process's score before the kernel's killer chooses: `/proc/PID/oom_score_adj`, -1000
/// (never) to 1000 (first); 1000 stands for the whole memory. Inherited by children.
///
/// A lower value than the process was last given by somebody with `CAP_SYS_RESOURCE` needs that capability
/// (fs/proc/base.c, `__set_oom_adj`): whoever lacks it can raise a value and take it back as far as it was.
/// Whoever has it moves that mark with each write, up too: a process raised by such a one can no longer
/// lower itself below that. So appstated does better without it.
public enum OOMScoreAdjustment {
    /// What the kernel takes.
    public static let range: ClosedRange<Int32> = -1000...1000

    /// The value of a process, by its id. `ESRCH`: there is no such process.
    public static func read(_ pid: Int32, proc: Proc) throws(KernelFailure) -> Int32 {
        try proc.readOnce(pid, "oom_score_adj") { $0.signed32() }
    }

    /// Changes a process that is `process` now and wholly the owner's.
    ///
    /// `ESRCH`: it is gone or another. `EPERM`: it is not the owner's. `EACCES`: the file is another user's
    /// than ours and we lack `CAP_DAC_OVERRIDE`, or the value is too low without `CAP_SYS_RESOURCE`.
    public static func write(
        _ value: Int32, to process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        let path = proc.path(process.pid, "oom_score_adj")
        // Opened first: the open file stays this process's, and the look says whose that is.
        let number = open(path, O_WRONLY | O_CLOEXEC)
        let failure = errno
        if number < 0, failure == ENOENT { throw proc.failure("open", process.pid, "oom_score_adj", failure) }
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: failure) }
        let file = Descriptor(owning: number)
        try proc.checkOwned(process, by: uid)
        try Files.write("\(value)", to: file, named: path)
    }
}

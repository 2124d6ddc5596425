import CLinux
import Glibc

extension PidFD {
    /// Takes the memory of a killed process at once, in our own time and on our processor, where the process
    /// itself may be slow to die (process_mrelease(2)).
    ///
    /// To be called after SIGKILL. It takes time in proportion to the memory: not for the deciding thread.
    ///
    /// Throws `EAGAIN` where only a part could be had, or its memory was locked by somebody (also `EINTR`); `EINVAL` where
    /// it was not killed, or a process that was not shares its memory (vfork(2)); `ESRCH` where it has no memory any more;
    /// `ENOSYS` where the kernel is older than 5.15.
    public func releaseMemory() throws(KernelFailure) {
        let result = clinux_process_mrelease(rawValue)
        guard result >= 0 else {
            throw KernelFailure(operation: "process_mrelease", subject: "pidfd \(rawValue)", errno: -result)
        }
    }
}

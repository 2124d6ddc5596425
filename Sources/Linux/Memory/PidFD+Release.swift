import CLinux
import Glibc

extension PidFD {
    /// Frees the memory of a killed process at once, in our own time and on our processor, because the
    /// process itself may be slow to die (process_mrelease(2)).
    ///
    /// Must be called after SIGKILL. It takes time in proportion to the memory, so the deciding thread must
    /// not call it.
    ///
    /// Throws `EAGAIN` if only a part could be freed, or if another task had locked its memory map (also
    /// `EINTR`); `EINVAL` if it was not killed, or if a process that was not killed shares its memory
    /// (vfork(2)); `ESRCH` if its memory is already gone; `ENOSYS` if the kernel is older than 5.15.
    public func releaseMemory() throws(KernelFailure) {
        let result = clinux_process_mrelease(rawValue)
        guard result >= 0 else {
            throw KernelFailure(operation: "process_mrelease", subject: "pidfd \(rawValue)", errno: -result)
        }
    }
}

import CLinux
import Glibc

extension PidFD {
    /// What came of taking a dying process's memory.
    public enum Release: Equatable, Sendable {
        /// All of it was taken, or had been already.
        case released
        /// `EAGAIN`: only a part could be had, or its memory was locked by somebody (also `EINTR`).
        case partial
        /// `EINVAL`: it was not killed, or a process that was not shares its memory (vfork(2)).
        case notDying
        /// `ESRCH`: it has no memory any more.
        case gone
        /// `ENOSYS`: the kernel is older than 5.15.
        case unsupported
        /// Another refusal.
        case failed(KernelFailure)
    }

    /// Takes the memory of a killed process at once, in our own time and on our processor, where the process
    /// itself may be slow to die (process_mrelease(2)).
    ///
    /// To be called after SIGKILL. It takes time in proportion to the memory: not for the deciding thread.
    public func releaseMemory() -> Release {
        let result = clinux_process_mrelease(rawValue)
        switch -result {
        case EAGAIN, EINTR: return .partial
        case EINVAL: return .notDying
        case ESRCH: return .gone
        case ENOSYS: return .unsupported
        case let number where number > 0:
            return .failed(
                KernelFailure(operation: "process_mrelease", subject: "pidfd \(rawValue)", errno: number))
        default: return .released
        }
    }
}

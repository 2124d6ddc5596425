import Glibc
import Linux
import TestSupport

extension StopTrace {
    /// Whether the kernel tells who stops whom, here and now.
    static let isAvailable: Bool = {
        do {
            _ = try StopTrace.open(proc: Proc())
            return true
        } catch {
            return false
        }
    }()
    static let whatIsMissing: String = "needs the tracepoint signal:signal_generate and the right to use it"
}

extension PidFD {
    /// Whether the kernel tells how a process ended that was waited for (PIDFD_INFO_EXIT, Linux 6.15).
    static let tellsExit: Bool = {
        guard let child = try? Child("true"), let descriptor = try? PidFD(pid: child.pid),
            (try? child.waitForExit()) != nil
        else { return false }
        return descriptor.exitStatus() == .exited(0)
    }()
}

/// Waits until a process has ended, whosever child it is.
func waitForEnd(of descriptor: borrowing PidFD) -> Bool {
    var end = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return poll(&end, 1, 300_000) == 1
}

import Glibc
import Linux
import TestSupport

extension StopTrace {
    /// Whether the kernel reports here which process stops which.
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
    /// Whether the kernel reports how a process ended that was already waited for (PIDFD_INFO_EXIT, Linux 6.15).
    static let tellsExit: Bool = {
        guard let child = try? Child("true"), let descriptor = try? PidFD(pid: child.pid),
            (try? child.waitForExit()) != nil
        else { return false }
        return descriptor.exitStatus() == .exited(0)
    }()
}

/// Waits until a process has ended, even if it is not a child of this one.
func waitForEnd(of descriptor: borrowing PidFD) -> Bool {
    var end = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return poll(&end, 1, 300_000) == 1
}

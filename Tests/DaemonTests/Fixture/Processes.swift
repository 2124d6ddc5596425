import Glibc
import Linux
import TestSupport

/// Whether a process is stopped by a signal just now.
func isStopped(_ pid: Int32) throws -> Bool {
    let proc = Proc()
    return try proc.isStopped(proc.identity(of: pid))
}

/// Waits until a process that is not a child of the test's is stopped. Nobody but its parent is told, so it is
/// looked at every millisecond.
func waitUntilStopped(_ pid: Int32) throws {
    let deadline = ContinuousClock.now + .seconds(120)
    while try !isStopped(pid) {
        guard ContinuousClock.now < deadline else { throw TestFailure("process \(pid) does not stop") }
        poll(nil, 0, 1)
    }
}

import Glibc
import Linux
import TestSupport

/// Whether a process is currently stopped by a signal.
func isStopped(_ pid: Int32) throws -> Bool {
    let proc = Proc()
    return try proc.isStopped(proc.identity(of: pid))
}

/// Waits until a process is stopped that is not a child of the test. It polls, because only the parent is notified.
func waitUntilStopped(_ pid: Int32) throws {
    guard try eventually({ try isStopped(pid) }) else { throw TestFailure("process \(pid) does not stop") }
}

import Glibc
import Linux
import TestSupport

/// Whether a process is stopped by a signal just now.
func isStopped(_ pid: Int32) throws -> Bool {
    let proc = Proc()
    return try proc.isStopped(proc.identity(of: pid))
}

/// Waits until a process that is not a child of the test's is stopped: nobody but its parent is told.
func waitUntilStopped(_ pid: Int32) throws {
    guard try eventually({ try isStopped(pid) }) else { throw TestFailure("process \(pid) does not stop") }
}

import Glibc
import Linux
import TestSupport
import Testing

@testable import appstate_session

/// Which application a process belongs to.
@Suite("The application of a process")
struct ProcApplicationTests {
    @Test("a process belongs to the nearest registered process above it")
    func nearest() throws {
        let shell = try Child("sh", ["-c", "sleep 1000 & echo child $!; wait"])
        let line = try shell.waitForLine(containing: "child ")
        let child = try #require(Int32(line.dropFirst("child ".count)))
        defer { kill(child, SIGKILL) }
        let proc = Proc()
        #expect(proc.application(of: child, among: [shell.pid]) == shell.pid)
        #expect(proc.application(of: child, among: [shell.pid, child]) == child)
        #expect(proc.application(of: child, among: []) == nil)
        #expect(proc.application(of: shell.pid, among: [child]) == nil)
    }
}

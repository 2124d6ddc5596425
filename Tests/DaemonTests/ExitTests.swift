import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Ends that no client requested from the daemon, and what it reports about them.
@Suite("Exits", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ExitTests {

    /// Ends a process and has its parent wait for it while the daemon is stopped.
    private func endUnseen(_ daemon: TestDaemon, _ child: Child, _ signal: Int32) throws {
        daemon.process.kill(SIGSTOP)
        daemon.process.waitUntilStopped()
        child.kill(signal)
        try child.waitForExit()
        daemon.process.kill(SIGCONT)
    }

    @Test(
        "how a process ended is unknown if the kernel does not report it and the parent was faster",
        .enabled(if: !PidFD.tellsExit, "this kernel tells (PIDFD_INFO_EXIT)"))
    func reapedBeforeUnknown() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try endUnseen(daemon, child, SIGSEGV)
        #expect(try client.waitForRemoval(of: path) == "unknown")
    }
}

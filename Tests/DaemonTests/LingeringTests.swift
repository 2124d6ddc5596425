import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// libsystemd closes the descriptors of every message, and close(2) may wait for as long as their sender likes.
@Suite(
    "Descriptors that are slow to close",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"))
struct LingeringTests {
    private static let canServeFiles: Bool = {
        guard getuid() == 0, access("/dev/fuse", R_OK | W_OK) == 0,
            let probe = try? Child("unshare", ["--mount", "--", "mount", "--bind", "/tmp", "/tmp"])
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    @Test("a lingering socket is closed without waiting")
    func socket() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        daemon.process.kill(SIGSTOP)
        let sender = try Scripts.start("lingering.py", on: daemon.bus)
        try sender.waitForLine(containing: "sent")
        daemon.process.kill(SIGCONT)
        // Arrives after the socket. A call that is not answered fails long before the socket would be closed.
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.After", app.pid)
        #expect(try client.state(path) == "background")
    }

    @Test(
        "a file whose server does not answer is closed without waiting",
        .enabled(if: Self.canServeFiles, "needs /dev/fuse, and root that may mount"))
    func file() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let sender = try Scripts.start("fuse_file.py", ["\(daemon.process.pid)"], on: daemon.bus)
        try sender.waitForLine(containing: "sent")
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.After", app.pid)
        #expect(try client.state(path) == "background")
        // Before the daemon is ended: the kernel waits for the server's answer or its end.
        sender.kill(SIGKILL)
        #expect(try sender.waitForExit() == .signalled(SIGKILL))
    }

    @Test(
        "a daemon that is killed while such a file is closed is replaced, and its applications are taken over",
        .enabled(if: Self.canServeFiles, "needs /dev/fuse, and root that may mount"))
    func replaced() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Before", app.pid)
        let sender = try Scripts.start("fuse_file.py", ["\(daemon.process.pid)"], on: daemon.bus)
        try sender.waitForLine(containing: "sent")
        let killed = daemon.process
        killed.kill(SIGKILL)
        try client.wait("the end of its first thread") {
            try String(contentsOfFile: "/proc/\(killed.pid)/stat", encoding: .utf8).contains(") Z ")
        }
        try daemon.start()
        #expect(try client.state(path) == "background")
        sender.kill(SIGKILL)
        #expect(try killed.waitForExit() == .signalled(SIGKILL))
    }
}

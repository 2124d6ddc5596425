import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// libsystemd closes the descriptors of every message, and close(2) waits for as long as the sender of a socket likes.
@Suite(
    "A lingering socket", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"))
struct LingeringTests {
    @Test("it is closed without waiting")
    func isClosed() throws {
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
}

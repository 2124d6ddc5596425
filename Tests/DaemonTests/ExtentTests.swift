import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// What is done to an application is done to its process and the descendants, and to no other process.
@Suite("The extent", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ExtentTests {
    // MARK: No process stays stopped

    /// A Python program of the user nobody that may become another user.
    private static func userChanger(_ script: String) throws -> Child {
        try Child(
            "setpriv",
            [
                "--reuid=\(App.nobody)", "--clear-groups", "--inh-caps=+setuid", "--ambient-caps=+setuid",
                "--", "/usr/bin/python3", "-c", script,
            ])
    }

    @Test(
        "appstated --release lets an application go although a child of it belongs to another user",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func releasedWithStranger() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let main = try Self.userChanger(
            """
            import os, signal
            if os.fork() == 0:
                os.setresuid(1, 1, 1)
                print('child', os.getpid(), flush=True)
            while True: signal.pause()
            """)
        let line = try main.waitForLine(containing: "child ")
        let child = try #require(Int32(line.split(separator: " ").last ?? ""))
        defer { kill(child, SIGKILL) }
        let path = try client.register("org.example.Tool", main.pid)
        try client.application(path, "Suspend")
        #expect(try isStopped(main.pid))
        #expect(try !isStopped(child))
        try daemon.end(SIGKILL)
        kill(child, SIGSTOP)
        try waitUntilStopped(child)
        let release = try daemon.release()
        #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
        #expect(try !isStopped(main.pid))
        #expect(try isStopped(child))
        try daemon.start()
        #expect(try client.holds(path) == [])
    }
}

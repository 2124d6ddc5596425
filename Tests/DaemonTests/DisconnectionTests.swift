import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// A bus that disconnects the daemon, and keeps running.
@Suite(
    "Disconnected by the bus", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: getuid() == 0, "needs root, to end another's connection"),
    .enabled(if: access(Scripts.python, X_OK) == 0, "needs python3"))
struct DisconnectionTests {
    @Test("every hold survives a disconnection")
    func holds() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let held = try Child("sleep", ["1000"])
        let free = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Held", held.pid)
        let other = try client.register("org.example.Free", free.pid)
        try client.application(path, "Suspend")
        #expect(try isStopped(held.pid))
        let script = try Scripts.start("disconnect.py", ["\(daemon.process.pid)"], on: daemon.bus)
        #expect(try script.waitForExit() == .exited(0), "\(script.errors)")
        #expect(script.output.hasPrefix("disconnected"))
        #expect(try daemon.process.waitForExit() == .exited(75))
        #expect(try isStopped(held.pid))
        try daemon.start()
        #expect(try client.state(path) == "suspended")
        #expect(try client.holds(path) == ["request uid:0"])
        #expect(try client.state(other) == "background")
        try client.application(path, "Resume")
        #expect(try !isStopped(held.pid))
        let subscriber = try daemon.subscriber()
        try subscriber.application(other, "Suspend")
        try subscriber.wait(for: other, toBe: "suspended")
    }
}

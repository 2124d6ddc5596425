import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// An application that stays suspended runs now and then, to read what fills the queues of its bus.
@Suite("Draining", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct DrainTests {
    @Test("a suspended application on a busy bus reads what it was sent, and its state stays suspended")
    func busy() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nDrainEverySec=50ms\nDrainForSec=50ms\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual,launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        let name = try app.ask("name")
        try client.application(path, "Suspend")
        try client.settle()
        client.forget()
        let process = try Proc().identity(of: app.pid)
        for round in 0..<3 {
            // Another client's messages, which the daemon does not see.
            for _ in 0..<100 {
                let call = try client.bus.newCall(
                    destination: name, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
                try client.bus.send(call)
            }
            try client.wait("round \(round) to be read") {
                try !UnixSockets.haveUnread([process])
            }
        }
        try client.settle()
        #expect(client.edges(of: path) == [])
        #expect(try client.state(path) == "suspended")
        try client.wait("the stop after the last drain") { try isStopped(app.pid) }
        #expect(try client.holds(path) == ["request uid:\(getuid())"])
        try client.application(path, "Resume")
        #expect(try !isStopped(app.pid))
    }
}

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

    @Test("an application that a person has suspended reads what a TCP connection has brought")
    func network() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nDrainEverySec=50ms\nDrainForSec=50ms\n")
        let client = try daemon.subscriber()
        let reader = try Child(
            Scripts.python,
            [
                "-c",
                """
                import socket
                end = socket.create_server(("127.0.0.1", 0))
                print("port", end.getsockname()[1], flush=True)
                there = end.accept()[0]
                print("on", flush=True)
                while there.recv(1): print("read", flush=True)
                """,
            ])
        let port = try #require(try reader.waitForLine(containing: "port").split(separator: " ").last)
        let sender = try Child(
            Scripts.python,
            [
                "-c",
                """
                import signal, socket, sys
                out = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
                signal.signal(signal.SIGUSR1, lambda *_: out.sendall(b"x"))
                print("on", flush=True)
                while True: signal.pause()
                """, String(port),
            ])
        try sender.waitForLine(containing: "on")
        try reader.waitForLine(containing: "on")
        let path = try client.register("org.example.App", reader.pid)
        try client.application(path, "Suspend")
        #expect(try isStopped(reader.pid))
        sender.kill(SIGUSR1)
        try reader.waitForLine(containing: "read")
        #expect(try client.state(path) == "suspended")
        try client.wait("the stop after the drain") { try isStopped(reader.pid) }
    }

    @Test("Suspend ends a drain, and is answered once the application is stopped")
    func suspend() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\nDrainEverySec=50ms\nDrainForSec=1h\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.App", child.pid, [("suspension", .string("automatic"))])
        try client.wait(for: path, toBe: "suspended")
        try client.wait("the drain") { try !isStopped(child.pid) && client.state(path) == "suspended" }
        try client.application(path, "Suspend")
        #expect(try isStopped(child.pid))
        #expect(try client.state(path) == "suspended")
        #expect(try client.holds(path) == ["policy appstated", "request uid:\(getuid())"])
    }

    @Test(
        "with DrainEverySec=0 a suspended application is never drained",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func never() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nDrainEverySec=0\nDrainForSec=50ms\n")
        let client = try daemon.client()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.App", child.pid)
        try client.application(path, "Suspend")
        try client.wait("timers to be disarmed") { try !daemon.hasArmedTimer() }
    }

    @Test(
        "another process's stop is not lifted for a drain",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func foreign() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nDrainEverySec=50ms\nDrainForSec=50ms\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.App", child.pid)
        child.kill(SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        try client.application(path, "Suspend")
        try client.wait("timers to be disarmed") { try !daemon.hasArmedTimer() }
    }
}

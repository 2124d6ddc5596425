import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// An application that policy has suspended runs when another process needs it. The processes are real.
@Suite("Demand", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)))
struct DemandTests {
    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    /// A process that policy has suspended.
    private struct Scene {
        let daemon: TestDaemon
        let client: Client
        let child: Child
        let home: TestCgroup?
        let path: String

        /// - Parameters:
        ///   - act: what the process does on a signal that asks it to end.
        ///   - isFrozen: whether it has a cgroup of its own and is frozen with it.
        init(_ act: String, isFrozen: Bool = false) throws {
            daemon = try TestDaemon(configuration: DemandTests.impatient)
            client = try daemon.subscriber()
            child = try Self.start(act)
            home = isFrozen ? try TestCgroup("app-demand") : nil
            try home?.take(child.pid)
            path = try Self.suspend(child, client)
        }

        static func start(_ act: String) throws -> Child {
            let script = """
                import os, signal
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, lambda *_: \(act))
                print('on', flush=True)
                while True: signal.pause()
                """
            let child = try Child("/usr/bin/python3", ["-c", script])
            _ = try child.waitForLine(containing: "on")
            return child
        }

        static func suspend(_ child: Child, _ client: Client) throws -> String {
            let path = try client.register(
                "org.example.App", child.pid, [("suspension", .string("automatic"))])
            try client.wait(for: path, toBe: "suspended")
            try #require(try client.holds(path) == ["policy appstated"])
            return path
        }

        func demand() throws -> Variant? { try client.explain(path)["last-demand"] }
    }

    private static let polite = "os._exit(7)"
    private static let stubborn = "None"

    @Test(
        "a suspended application that is sent a signal to end runs and ends",
        arguments: [SIGTERM, SIGHUP, SIGINT])
    func ends(_ signal: Int32) throws {
        let scene = try Scene(Self.polite)
        scene.child.kill(signal)
        #expect(try scene.client.waitForRemoval(of: scene.path) == "exited")
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test(
        "a frozen application that is sent a signal to end runs and ends",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func endsFrozen() throws {
        let scene = try Scene(Self.polite, isFrozen: true)
        #expect(try scene.home?.cgroup.isFrozen() == true)
        scene.child.kill(SIGTERM)
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test("Explain names the sender of the signal; an application that does not end is suspended again")
    func stays() throws {
        let scene = try Scene(Self.stubborn)
        scene.client.forget()
        let sender = try Child("sh", ["-c", "kill -TERM \(scene.child.pid); echo done; read line"])
        _ = try sender.waitForLine(containing: "done")
        try scene.client.wait("its return") {
            scene.client.edges(of: scene.path) == ["suspended→background", "background→suspended"]
        }
        guard case .string(let why)? = try scene.demand() else {
            Issue.record("Explain reports no demand")
            return
        }
        // Polling does not find the sender.
        #expect(["SIGTERM by pid \(sender.pid)", "SIGTERM"].contains(why))
        sender.kill(SIGKILL)
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Policy never suspends an application that holds a file lock for which another process waits.
@Suite("File locks", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct LockTests {
    /// An application in the background that holds a lock, and is to be suspended when it acknowledges.
    private struct Scene {
        let daemon: TestDaemon
        let client: Client
        let app: App
        let path: String
        let file: String

        init(_ configuration: String = "[LifeCycle]\nBackgroundGraceSec=1h\n", polling: Bool = false) throws {
            daemon = try TestDaemon(
                configuration: configuration, withoutCapabilities: polling ? ["perfmon", "sys_admin"] : [])
            client = try daemon.subscriber()
            file = daemon.bus.directory + "/lock"
            app = try App(daemon.bus)
            try app.ask("lock \(file)")
            path = try app.register("org.example.Actor", "launch-mode=s:background,suspension=s:automatic")
            try app.application(path, "FinishLaunching")
            try client.wait(for: path, toBe: "background")
        }

        func acknowledge() throws {
            let serial = try #require(try app.last("DidEnterBackground", of: path).first)
            app.tell("call \(path) \(BusNames.application) Acknowledge t:\(serial)")
        }

        /// A process that waits for the lock.
        func waiter() throws -> Child {
            try Child("flock", ["--exclusive", file, "echo", "got it"])
        }

        /// Waits until the kernel lists a waiter for the file.
        func waitForWaiter(_ waiter: Child) throws {
            try client.wait("a waiter") {
                try String(contentsOfFile: "/proc/locks", encoding: .utf8).split(separator: "\n").contains {
                    $0.contains("->") && $0.contains(" \(waiter.pid) ")
                }
            }
        }
    }

    @Test("an application with a contested lock is not suspended, and Explain and ListObjections say why")
    func before() throws {
        let scene = try Scene()
        let waiter = try scene.waiter()
        try scene.waitForWaiter(waiter)
        let reasons = try scene.client.listObjections(scene.path)
        #expect(reasons.contains { $0.contains("waits for a file lock") && $0.contains("pid \(waiter.pid)") })
        try scene.acknowledge()
        try scene.client.wait("the objection") {
            guard case .string(let why)? = try scene.client.explain(scene.path)["last-objection"] else {
                return false
            }
            return why.contains("waits for a file lock")
        }
        #expect(try scene.client.holds(scene.path) == [])
        #expect(try !isStopped(scene.app.pid))
    }

    @Test("a suspended application whose lock becomes contested is resumed, and Explain says why")
    func after() throws { try expectResumed(Scene()) }

    private func expectResumed(_ scene: Scene) throws {
        try scene.acknowledge()
        try scene.client.wait(for: scene.path, toBe: "suspended")
        let waiter = try scene.waiter()
        try scene.client.wait(for: scene.path, toBe: "background")
        #expect(try !isStopped(scene.app.pid))
        guard case .string(let why)? = try scene.client.explain(scene.path)["last-objection"] else {
            Issue.record("Explain does not say why")
            return
        }
        #expect(why.contains("pid \(waiter.pid) waits for a file lock"))
        try scene.app.ask("unlock")
        try waiter.waitForLine(containing: "got it")
    }
}

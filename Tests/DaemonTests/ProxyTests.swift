import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The caches of GLib's proxies stay correct although they call no method of the service.
@Suite(
    "Ready-made clients", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ProxyTests {
    private static let needsGI: Comment = "needs python3-gi"

    private static let followed = [
        "State", "StateTimestamp", "StateTimestampMonotonic", "Focused", "Minimized", "SuspendHolds",
    ]

    /// The line that a script prints when its cache matches the service.
    private func truth(_ client: Client, _ path: String, of object: String? = nil) throws -> String {
        let values = try Self.followed.map { try client.property(path, $0).printed }
        return (["cached"] + (object.map { [$0] } ?? []) + values).joined(separator: " | ")
    }

    /// Focuses, minimizes, stops and continues; runs `check` once each has taken effect.
    private func live(
        _ client: Client, _ path: String, _ process: Child, check: (String) throws -> Void
    ) throws {
        func step(_ state: String, _ act: () throws -> Void) throws {
            try act()
            try client.wait(for: path, toBe: state)
            #expect(try client.state(path) == state)
            try check(state)
        }
        try step("active") { try client.setFocus(process.pid) }
        try step("suspended") { process.kill(SIGSTOP) }
        try step("active") { process.kill(SIGCONT) }
        try step("background") { try client.setMinimized(process.pid, true) }
        try step("suspended") { try client.application(path, "Suspend") }
        try step("background") { try client.application(path, "Resume") }
    }

    @Test(
        "an unsubscribed GDBusProxy keeps a correct cache through focus, minimize, stop and continue",
        .enabled(if: Scripts.haveGI, needsGI))
    func proxy() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        let script = try Scripts.start(
            "proxy.py", [path, BusNames.application] + Self.followed, on: daemon.bus)
        try script.waitForLine(containing: truth(client, path))
        try live(client, path, child) { _ in try script.waitForLine(containing: truth(client, path)) }
        #expect(script.errors == "")
    }

    @Test(
        "an unsubscribed GDBusObjectManagerClient follows all objects with correct properties",
        .enabled(if: Scripts.haveGI, needsGI))
    func objectManager() throws {
        let stage = try Stage()
        let client = stage.client
        let script = try Scripts.start("objects.py", Self.followed, on: stage.daemon.bus)
        try script.waitForLine(containing: "ready")
        #expect(script.output.contains("added \(stage.path)\n"))
        #expect(script.output.contains(try truth(client, stage.path, of: stage.path)))
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Later", child.pid)
        try script.waitForLine(containing: "added \(path)")
        try script.waitForLine(containing: truth(client, path, of: path))
        try live(client, path, child) { _ in
            for path in [path, stage.path] {
                try script.waitForLine(containing: truth(client, path, of: path))
            }
        }
        // The service sends to each client in order.
        try client.application(stage.path, "Unregister")
        child.kill(SIGKILL)
        try script.waitForLine(containing: "removed \(path)")
        try script.waitForLine(containing: "removed \(stage.path)")
        #expect(script.errors == "")
    }
}

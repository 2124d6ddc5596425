import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Stops that other processes make, as a subscriber sees them.
@Suite("Foreign stops", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct StopTests {
    @Test("kill -STOP walks an active application to suspended, kill -CONT back to active")
    func stopAndContinue() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try client.setFocus(child.pid)
        try client.wait(for: path, toBe: "active")
        client.forget()

        kill(child.pid, SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        #expect(client.edges(of: path) == ["active→inactive", "inactive→background", "background→suspended"])

        client.forget()
        kill(child.pid, SIGCONT)
        try client.wait(for: path, toBe: "active")
        #expect(client.edges(of: path) == ["suspended→background", "background→inactive", "inactive→active"])
    }

    @Test(
        "without the tracepoint stops are found by polling, and StopDetection says so",
        .enabled(if: TestDaemon.canBeOthers, "needs root, to take capabilities from the daemon"))
    func polling() throws {
        let daemon = try TestDaemon(withoutCapabilities: ["perfmon", "sys_admin"])
        let client = try daemon.subscriber()
        #expect(try client.property(BusNames.root, BusNames.manager, "StopDetection") == .string("polling"))
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        kill(child.pid, SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        kill(child.pid, SIGCONT)
        try client.wait(for: path, toBe: "background")
    }

    @Test(
        "a continuation is seen although a signal that the process ignores follows at once",
        .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
    func overtaken() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sh", ["-c", "trap '' TSTP; echo ready; exec sleep 1000"])
        try child.waitForLine(containing: "ready")
        let path = try client.register("org.example.Editor", child.pid)
        kill(child.pid, SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        // The daemon finds both signals at once.
        daemon.process.kill(SIGSTOP)
        kill(child.pid, SIGCONT)
        kill(child.pid, SIGTSTP)
        daemon.process.kill(SIGCONT)
        try client.wait(for: path, toBe: "background")
    }
}

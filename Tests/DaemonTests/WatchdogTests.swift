import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Applications that miss an answer that they have promised (docs/lifecycle.md § 7).
@Suite("Watchdog", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct WatchdogTests {
    private static let id = "org.example.Actor"

    private func missed(_ client: Client, _ path: String) -> [String] {
        client.signals(of: path).filter { $0.member == "DidBecomeUnresponsive" }.map { $0.arguments[0] }
    }

    private func unresponsive(_ client: Client, _ path: String) throws -> Variant {
        try client.property(path, "Unresponsive")
    }

    @Test("without an acknowledgement, UnresponsiveAction=terminate kills, and report suspends")
    func background() throws {
        let daemon = try TestDaemon(
            configuration: """
                [LifeCycle]
                BackgroundGraceSec=200ms
                [Application org.example.Hangs]
                UnresponsiveAction=terminate
                """)
        let client = try daemon.subscriber()
        let (told, killed) = (try App(daemon.bus), try App(daemon.bus))
        let toldPath = try told.register(Self.id, "suspension=s:automatic")
        let killedPath = try killed.register("org.example.Hangs", "suspension=s:automatic")
        for (app, path) in [(told, toldPath), (killed, killedPath)] {
            try app.application(path, "FinishLaunching")
            try client.setFocus(app.pid)
            try client.wait(for: path, toBe: "active")
        }
        for app in [told, killed] { try client.setMinimized(app.pid, true) }
        #expect(try client.waitForRemoval(of: killedPath) == "unresponsive")
        try client.wait(for: toldPath, toBe: "suspended")
        try client.settle()
        #expect(missed(client, toldPath) == ["background"])
        #expect(missed(client, killedPath) == ["background"])
    }
}

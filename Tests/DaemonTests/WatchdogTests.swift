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

    @Test("a launch that takes too long is reported and counts as finished; a late answer still counts")
    func launch() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nLaunchTimeoutSec=100ms\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register(Self.id)
        try client.wait(for: path, toBe: "inactive")
        try client.settle()
        #expect(missed(client, path) == ["launch"])
        #expect(try unresponsive(client, path) == .string("launch"))
        // The application itself does not get the signal.
        try app.settle()
        #expect(!app.story(of: path).contains("DidBecomeUnresponsive"))
        try app.application(path, "FinishLaunching")
        #expect(try unresponsive(client, path) == .string(""))
    }

    @Test("LaunchTimeoutAction=terminate kills a slow launch and drops the state it was to restore")
    func launchKilled() throws {
        func configuration(_ limit: String) -> String {
            "[LifeCycle]\nLaunchTimeoutSec=\(limit)\nLaunchTimeoutAction=terminate\n"
        }
        let daemon = try TestDaemon(configuration: configuration("1h"), keeps: true)
        let client = try daemon.subscriber()
        let first = try App(daemon.bus)
        let firstPath = try first.register(Self.id)
        try first.application(firstPath, "FinishLaunching")
        try first.application(firstPath, "SaveState ay:spoilt")
        first.process.kill(SIGTERM)
        try client.waitForRemoval(of: firstPath)

        let second = try App(daemon.bus)
        try daemon.reconfigure(configuration("500ms"))
        // It may be killed before it has printed an answer.
        second.tell("call \(BusNames.root) \(BusNames.manager) Register s:\(Self.id) u:0 {}")
        func registration() -> Client.Received? {
            client.received.last {
                $0.member == "ApplicationAdded" && $0.arguments.last == "\(second.pid)"
            }
        }
        try client.wait("the registration") { registration() != nil }
        let path = try #require(registration()?.arguments.first)
        #expect(try client.waitForRemoval(of: path) == "unresponsive")
        #expect(try second.process.waitForExit() == .signalled(SIGKILL))
        #expect(missed(client, path) == ["launch"])

        let third = try App(daemon.bus)
        try daemon.reconfigure(configuration("1h"))
        let thirdPath = try third.register(Self.id)
        #expect(try third.application(thirdPath, "LoadState") == "")
        guard case .dictionary(let options) = try client.property(thirdPath, "LaunchOptions") else {
            throw TestFailure("LaunchOptions is not a dictionary")
        }
        #expect(options["exit-reason"] == .string("unresponsive"))
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

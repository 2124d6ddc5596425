import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// What the daemon suspends by itself, and what prevents that.
@Suite("Suspension by policy", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct PolicyTests {
    private static let patient = "[LifeCycle]\nBackgroundGraceSec=10min\n"
    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    /// An application in the foreground; the client has received its signals and forgotten them.
    private func launched(
        _ daemon: TestDaemon, _ client: Client, _ options: String = ""
    ) throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", options)
        try app.application(path, "FinishLaunching")
        try client.catchUp()
        return (app, path)
    }

    @Test("policy suspends a background application after its grace period, and focus releases it")
    func grace() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=100ms\n")
        let client = try daemon.subscriber()
        let (app, path) = try launched(daemon, client)
        try client.setMinimized(app.pid, true)
        try client.wait(for: path, toBe: "suspended")
        #expect(
            client.story(of: path) == [
                "inactive→background", "DidEnterBackground", "DidBecomeUnresponsive", "background→suspended",
            ])
        #expect(client.reasons(of: path) == ["windows", "policy"])
        #expect(try client.holds(path) == ["policy appstated"])
        #expect(try isStopped(app.pid))

        client.forget()
        try client.setFocus(app.pid)
        try client.wait(for: path, toBe: "active")
        #expect(try !isStopped(app.pid))
        #expect(try client.holds(path) == [])
        #expect(client.edges(of: path) == ["suspended→background", "background→inactive", "inactive→active"])
        #expect(Set(client.reasons(of: path)) == ["focus"])
    }

    @Test("BackgroundTimeRemaining is the time that is left, and unlimited in the foreground")
    func timeRemaining() throws {
        let daemon = try TestDaemon(configuration: Self.patient)
        let client = try daemon.subscriber()
        let (app, path) = try launched(daemon, client)
        #expect(try app.application(path, "BackgroundTimeRemaining") == "\(UInt64.max)")
        try client.setMinimized(app.pid, true)
        let left = try #require(UInt64(try app.application(path, "BackgroundTimeRemaining")))
        #expect((1...600_000_000).contains(left))
    }

    @Test("with Mode=observe policy only says what it would suspend, and a user's request is obeyed")
    func observe() throws {
        let daemon = try TestDaemon(configuration: "[Daemon]\nMode=observe\n" + Self.impatient)
        let client = try daemon.subscriber()
        let (app, path) = try launched(daemon, client)
        try client.setMinimized(app.pid, true)
        try daemon.process.waitForLine(containing: "would suspend")
        #expect(try client.state(path) == "background")
        #expect(try client.explain(path)["would-suspend"] == .bool(true))
        #expect(try client.holds(path) == [])
        #expect(try !isStopped(app.pid))
        try client.setFocus(app.pid)
        #expect(try client.explain(path)["would-suspend"] == .bool(false))
        try client.application(path, "Suspend")
        #expect(try client.state(path) == "suspended")
        #expect(try isStopped(app.pid))
    }
}

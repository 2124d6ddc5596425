import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// A suspended application is sent nothing; what it missed it gets when it runs again.
@Suite(
    "A delegate that is suspended", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing))
)
struct ReplayTests {
    private func active(_ daemon: TestDaemon, _ client: Client) throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register()
        try client.setFocus(app.pid)
        try app.application(path, "FinishLaunching")
        try client.wait(for: path, toBe: "active")
        try app.settle()
        return (app, path)
    }

    /// What leads from active to suspended and back, as the delegate hears it: not the edges to and from
    /// suspended.
    private let missed = [
        "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
        "WillEnterForeground", "background→inactive", "inactive→active", "DidBecomeActive",
    ]

    @Test("on request: it hears of the way there when it is back, once, and then of its return")
    func request() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let (app, path) = try active(daemon, client)
        let before = app.story(of: path)
        try client.application(path, "Suspend")
        try client.application(path, "Resume")
        try app.settle()
        #expect(app.story(of: path).prefix(before.count) == before[...])
        #expect(Array(app.story(of: path).dropFirst(before.count)) == missed)
        // A deadline of then means nothing now.
        #expect(try app.last("DidEnterBackground", of: path) == ["0", "0"])
    }

    @Test("stopped by somebody else: the same")
    func signal() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let (app, path) = try active(daemon, client)
        let before = app.story(of: path)
        app.process.kill(SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        app.process.kill(SIGCONT)
        try client.wait(for: path, toBe: "active")
        try app.settle()
        #expect(Array(app.story(of: path).dropFirst(before.count)) == missed)
    }

    @Test("continued against a hold by somebody else and stopped again: every round is told whole")
    func rounds() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let (app, path) = try active(daemon, client)
        let before = app.story(of: path)
        try client.application(path, "Suspend")
        for _ in 0..<3 {
            try client.catchUp()
            app.process.kill(SIGCONT)
            try client.wait(for: path, toBe: "suspended")
        }
        try client.application(path, "Resume")
        try app.settle()
        let heard = Array(app.story(of: path).dropFirst(before.count))
        #expect(heard == missed + missed + missed + missed)
    }

    @Test("what happens to its windows meanwhile is no edge, and it returns to where they are")
    func windowsMeanwhile() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let (app, path) = try active(daemon, client)
        let before = app.story(of: path)
        try client.application(path, "Suspend")
        try client.settle()
        client.forget()
        try client.setMinimized(app.pid, true)
        try client.setMinimized(app.pid, false)
        try client.setFocus(0)
        try client.settle()
        #expect(client.edges(of: path) == [])
        try client.application(path, "Resume")
        try app.settle()
        #expect(
            Array(app.story(of: path).dropFirst(before.count)) == [
                "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
                "WillEnterForeground", "background→inactive",
            ])
    }

    @Test("who becomes the delegate after it all is told nothing of it")
    func lateDelegate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let (app, path) = try active(daemon, client)
        _ = try app.make("descend")
        try app.application(path, "BecomeDelegate")
        let before = app.story(of: path)
        try client.application(path, "Suspend")
        // Its predecessor's connection is gone with its process: nobody's backlog is handed on.
        try client.application(path, "Resume")
        try app.settle()
        #expect(Array(app.story(of: path).dropFirst(before.count)) == missed)
    }
}

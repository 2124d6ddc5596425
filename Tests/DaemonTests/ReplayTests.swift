import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// A suspended application is sent nothing. It gets what it missed when it runs again.
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

    /// The signals from active to suspended and back, as a delegate gets them: without the edges to and from
    /// suspended.
    private let missed = [
        "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
        "WillEnterForeground", "background→inactive", "inactive→active", "DidBecomeActive",
    ]

    @Test("a delegate suspended on request gets what it missed once, when it resumes, before its return")
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
        // The deadline of that time means nothing any more.
        #expect(try app.last("DidEnterBackground", of: path) == ["0", "0"])
    }

    @Test("a delegate stopped by another process gets what it missed when it is continued")
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

    @Test("a held delegate that others continue again and again gets the signals of every round in full")
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

    @Test("window changes during a suspension cause no edges, and the application returns according to them")
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

    @Test("a new delegate gets nothing from before it became the delegate")
    func lateDelegate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let (app, path) = try active(daemon, client)
        _ = try app.make("descend")
        // Only the main process: its descendant runs.
        app.process.kill(SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        try app.application(path, "BecomeDelegate")
        let before = app.story(of: path)
        app.process.kill(SIGCONT)
        try client.wait(for: path, toBe: "active")
        try app.settle()
        // What the previous delegate has missed is not handed on.
        #expect(Array(app.story(of: path).dropFirst(before.count)) == Array(missed.suffix(4)))
    }
}

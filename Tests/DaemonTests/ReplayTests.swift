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
        #expect(try app.last("DidEnterBackground", of: path) == ["0", "\(UInt64.never)"])
    }
}

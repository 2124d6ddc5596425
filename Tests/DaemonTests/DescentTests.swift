import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// An application consists of its process and the descendants, down to any other registered process.
@Suite("Descent", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct DescentTests {
    @Test(
        "GetApplicationByPID finds an application by its process and its descendants, and by no other")
    func byPID() throws {
        let stage = try Stage()
        let app = try App(stage.daemon.bus)
        let path = try app.register()
        let child = try app.make("fork")
        #expect(try stage.client.application(ofPID: app.pid) == path)
        #expect(try stage.client.application(ofPID: child) == path)
        #expect(try stage.client.application(ofPID: stage.process.pid) == stage.path)
        try stage.refuses(.noSuchApplication, "a stranger") {
            _ = try stage.client.application(ofPID: stage.daemon.process.pid)
        }
        let gone = try Child("true")
        try gone.waitForExit()
        for pid in [gone.pid, 0] {
            try stage.refuses(.noSuchProcess, "pid \(pid)") { _ = try stage.client.application(ofPID: pid) }
        }
    }

    @Test("a descendant can become the delegate, and the previous delegate is sent nothing more")
    func descendantAsDelegate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        _ = try app.make("descend")
        try app.application(path, "BecomeDelegate")
        #expect(try client.explain(path)["delegate"] == .string(try app.ask("name")))
        try client.setFocus(app.pid)
        try app.settle()
        // What the first connection gets is no longer printed: all of this was sent to the second.
        #expect(app.story(of: path).suffix(2) == ["inactive→active", "DidBecomeActive"])
    }
}

import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Terminate, orderly and by force.
@Suite("Termination", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct TerminationTests {
    /// A delegate that has finished launching; the client has received its signals and forgotten them.
    private func launched(_ daemon: TestDaemon, _ client: Client) throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.catchUp()
        return (app, path)
    }

    private static let patient = "[LifeCycle]\nTerminateGraceSec=10min\n"

    @Test("ApplicationRemoved says in a dictionary how the application ended")
    func details() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        var details: [[String: Variant]] = []
        let filter = try client.bus.addFilter { message in
            guard message.isSignal, message.member == "ApplicationRemoved" else { return false }
            do {
                try message.skip("osus")
                details.append(Dictionary(try message.readDictionary().map { ($0.key, $0.value) }) { $1 })
                try message.rewind()
            } catch {
                Issue.record("\(error)")
            }
            return false
        }
        let (app, path) = try launched(daemon, client)
        try app.application(path, "SetUnsavedChanges b:true")
        try client.application(path, "Suspend")
        try client.terminate(path, force: true)
        #expect(try client.waitForRemoval(of: path) == "force-quit")
        let child = try Child("sleep", ["1000"])
        let other = try client.register("org.example.Other", child.pid)
        try client.application(other, "Unregister")
        try client.settle()
        filter.cancel()
        #expect(
            details.map { $0.filter { $0.key != "session" } } == [
                [
                    "previous-state": .string("suspended"), "exit-status": .int32(SIGKILL),
                    "unsaved-changes": .bool(true), "relaunch": .bool(false),
                ], [:],
            ])
    }

    @Test("an application that ignores SIGTERM is killed at the deadline, with its children")
    func deadline() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nTerminateGraceSec=300ms\n")
        let client = try daemon.subscriber()
        let (app, path) = try launched(daemon, client)
        try app.ask("ignore \(SIGTERM)")
        let child = try PidFD(pid: try app.make("fork"))
        try client.terminate(path)
        #expect(try client.waitForRemoval(of: path) == "terminated")
        #expect(try app.process.waitForExit() == .signalled(SIGKILL))
        let hasEnded = waitForEnd(of: child)
        #expect(hasEnded)
    }

    @Test("a forced Terminate kills the whole application at once, without a warning")
    func force() throws {
        let daemon = try TestDaemon(configuration: Self.patient)
        let client = try daemon.subscriber()
        let (app, path) = try launched(daemon, client)
        let child = try PidFD(pid: try app.make("fork"))
        let inner = try app.make("fork")
        let innerPath = try client.register("org.example.Inner", inner)
        try client.catchUp()
        try client.terminate(path, force: true)
        #expect(try client.waitForRemoval(of: path) == "force-quit")
        #expect(try app.process.waitForExit() == .signalled(SIGKILL))
        let hasEnded = waitForEnd(of: child)
        #expect(hasEnded)
        #expect(client.story(of: path) == ["inactive→not-running"])
        // A child that is an application of its own is not affected.
        #expect(try client.state(innerPath) == "background")
        #expect(try !isStopped(inner))
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Suspend, Resume and ListObjections, as a user calls them.
@Suite("Suspension on request", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct SuspendTests {
    @Test("a walk sends one PropertiesChanged, after its edges, with all that changed")
    func coalesced() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try client.setFocus(child.pid)
        try client.wait(for: path, toBe: "active")
        try client.settle()
        client.forget()
        // A stop by signal completes a moment later, so only the way back is one walk.
        try client.application(path, "Suspend")
        try client.settle()
        client.forget()
        try client.application(path, "Resume")
        try client.settle()
        #expect(
            client.received.filter { $0.path == path }.map(\.member) == [
                "StateChanged", "WillEnterForeground", "StateChanged", "StateChanged", "DidBecomeActive",
                "PropertiesChanged",
            ])
    }

    @Test("ListObjections names the objections, and none for an application that rests in the background")
    func listObjections() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual")
        #expect(try client.listObjections(path) == ["has a visible window", "is launching"])
        try app.application(path, "FinishLaunching")
        #expect(try client.listObjections(path) == ["has a visible window"])
        try client.setMinimized(app.pid, true)
        #expect(try client.listObjections(path) == [])
        let task = try app.application(path, "BeginBackgroundTask s:upload")
        #expect(try client.listObjections(path) == ["background task upload"])
        try app.application(path, "EndBackgroundTask t:\(task)")
        #expect(try client.listObjections(path) == [])
        let child = try Child("sleep", ["1000"])
        let never = try client.register("org.example.Server", child.pid, [("suspension", .string("never"))])
        #expect(try client.listObjections(never) == ["suspension is never"])
        // `never` binds policy only; a user's request is obeyed.
        try client.application(never, "Suspend")
        #expect(try client.state(never) == "suspended")
    }
}

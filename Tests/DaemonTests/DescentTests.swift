import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// An application is its process and the descendants, ending at any other registered process.
@Suite("Descent", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct DescentTests {
    @Test("GetApplicationByPID knows the process and its descendants, and no stranger")
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

    @Test("a registered descendant is an application of its own")
    func nested() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        let child = try app.make("fork")
        let inner = try client.register("org.example.Inner", child)
        #expect(try client.application(ofPID: child) == inner)
        try client.application(inner, "Unregister")
        #expect(try client.application(ofPID: child) == path)
    }

    @Test("a window of a descendant is the application's, until the descendant is one itself")
    func descendantsWindow() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let child = try app.make("fork")
        try client.setFocus(child)
        try client.wait(for: path, toBe: "active")
        client.forget()
        let inner = try client.register("org.example.Inner", child)
        try client.wait(for: inner, toBe: "active")
        #expect(try client.state(path) == "background")
        #expect(
            try client.property(BusNames.root, BusNames.manager, "FocusedApplication") == .objectPath(inner))
        try client.application(inner, "Unregister")
        try client.wait(for: path, toBe: "active")
    }

    @Test("a descendant becomes the delegate in its turn, and the delegate before it is told nothing more")
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
        // What the first connection was sent is not said any more: all of this is the second's.
        #expect(app.story(of: path).suffix(2) == ["inactive→active", "DidBecomeActive"])
    }

    @Test("a descendant may register the process that it came from, and be its delegate")
    func descendantRegisters() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        _ = try app.make("descend")
        let path = try app.manager("Register s:org.example.Actor u:\(app.pid) {delegate=b:true}")
        #expect(try client.property(path, "PID") == .uint32(UInt32(app.pid)))
        #expect(try client.state(path) == "not-running")
        try app.application(path, "FinishLaunching")
        // Registered by another process than its own: no window is known of it.
        #expect(try client.state(path) == "background")
    }

    @Test("a double fork leaves the application, which ends with its own process all the same")
    func doubleFork() throws {
        let stage = try Stage()
        let app = try App(stage.daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let grandchild = try app.make("double-fork")
        try stage.client.settle()
        try stage.refuses(.noSuchApplication, "the grandchild") {
            _ = try stage.client.application(ofPID: grandchild)
        }
        try stage.client.application(path, "Suspend")
        #expect(try !isStopped(grandchild))
        try stage.client.application(path, "Resume")
        // It may be registered by itself.
        let own = try stage.client.register("org.example.Grandchild", grandchild)
        app.process.kill(SIGKILL)
        try stage.client.waitForRemoval(of: path)
        #expect(try stage.client.state(own) == "background")
    }

    @Test("an exec keeps the registration; its connection, and with it the delegate, is gone")
    func exec() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let name = try app.ask("name")
        try client.waitForDeparture(of: name) { try app.ask("exec sleep 1000") }
        client.forget()
        #expect(try client.explain(path)["delegate"] == .string(""))
        #expect(try client.state(path) == "inactive")
        #expect(try client.application(ofPID: app.pid) == path)
        try client.application(path, "Suspend")
        #expect(try isStopped(app.pid))
        try client.application(path, "Resume")
        app.process.kill(SIGTERM)
        #expect(try client.waitForRemoval(of: path) == "killed")
    }

    @Test("an exec during the launch leaves nobody to finish it: it times out")
    func execDuringLaunch() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nLaunchTimeoutSec=500ms\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.ask("exec sleep 1000")
        try client.wait(for: path, toBe: "inactive")
        #expect(client.reasons(of: path) == ["launch-timeout"])
    }
}

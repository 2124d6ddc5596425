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

    @Test("a descendant's window belongs to the application until the descendant is registered itself")
    func descendantsWindow() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual")
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

    @Test("a descendant may register its parent process, and be its delegate")
    func descendantRegisters() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        _ = try app.make("descend")
        let path = try app.manager("Register s:org.example.Actor u:\(app.pid) {delegate=b:true}")
        #expect(try client.property(path, "PID") == .uint32(UInt32(app.pid)))
        #expect(try client.state(path) == "not-running")
        try app.application(path, "FinishLaunching")
        // Another process has registered it, so none of its windows is known.
        #expect(try client.state(path) == "background")
    }

    @Test("a process that forks twice leaves the application, which still ends with its own process")
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
        // It may be registered on its own.
        let own = try stage.client.register("org.example.Grandchild", grandchild)
        app.process.kill(SIGKILL)
        try stage.client.waitForRemoval(of: path)
        #expect(try stage.client.state(own) == "background")
    }

    @Test("an exec keeps the registration, but the connection is gone, and with it the delegate")
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

    @Test("an exec during the launch leaves no delegate to finish it, so the launch times out")
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

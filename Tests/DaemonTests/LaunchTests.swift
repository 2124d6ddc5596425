import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// From registration to the first state, and what can happen in between.
@Suite("Launch", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct LaunchTests {
    @Test("a launch into the foreground sends both launch signals, then WillEnterForeground and the edge")
    func foreground() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.settle()
        #expect(app.story(of: path) == ["WillFinishLaunching", "DidFinishLaunching"])
        #expect(try client.state(path) == "not-running")
        try app.application(path, "FinishLaunching")
        try app.settle()
        let story = [
            "WillFinishLaunching", "DidFinishLaunching", "WillEnterForeground", "not-running→inactive",
        ]
        #expect(app.story(of: path) == story)
        try client.settle()
        #expect(client.story(of: path) == story)
        #expect(client.reasons(of: path) == ["launch"])
    }

    @Test(
        "a launch into the background sends both launch signals, the edge, and DidEnterBackground")
    func background() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=10min\n")
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        try app.settle()
        #expect(
            app.story(of: path) == [
                "WillFinishLaunching", "DidFinishLaunching", "not-running→background", "DidEnterBackground",
            ])
        let arguments = try app.last("DidEnterBackground", of: path).compactMap(UInt64.init)
        #expect(arguments.count == 2)
        #expect(arguments.allSatisfy { $0 > 0 })
        #expect(
            try daemon.client().explain(path)["suspension-deadline"] == .uint64(try #require(arguments.last)))
    }

    @Test("DidEnterBackground has deadline 0 for an application that will not be suspended")
    func noDeadline() throws {
        let daemon = try TestDaemon()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "launch-mode=s:background,suspension=s:manual")
        try app.application(path, "FinishLaunching")
        #expect(try app.last("DidEnterBackground", of: path).last == "0")
    }

    @Test("WillFinishLaunching carries the launch options to the delegate")
    func launchOptions() throws {
        let daemon = try TestDaemon()
        let app = try App(daemon.bus)
        _ = try app.register("org.example.Editor", "launch-options=large:7")
        try app.settle()
        let carried = app.lines.filter { $0.hasPrefix("options WillFinishLaunching ") }
        #expect(carried.count == 1 && carried[0].contains("="), "\(carried)")
    }

    @Test(
        "facts are collected during a launch, and FinishLaunching leads to the state that they imply")
    func focusedWhileLaunching() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try client.setFocus(app.pid)
        #expect(try client.state(path) == "not-running")
        #expect(try client.explain(path)["target"] == .string("not-running"))
        try app.application(path, "FinishLaunching")
        try app.settle()
        #expect(
            app.story(of: path).dropFirst(2) == [
                "WillEnterForeground", "not-running→inactive", "inactive→active", "DidBecomeActive",
            ])
    }

    @Test("a second FinishLaunching changes nothing")
    func finishedTwice() throws {
        let stage = try Stage()
        let app = try App(stage.daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try stage.client.settle()
        stage.client.forget()
        let before = try stage.client.picture()
        try app.application(path, "FinishLaunching")
        try stage.client.settle()
        #expect(stage.client.received == [])
        #expect(try stage.client.picture() == before)
    }

    @Test("a launch that does not finish ends after LaunchTimeoutSec, with the reason launch-timeout")
    func timeout() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nLaunchTimeoutSec=100ms\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try client.wait(for: path, toBe: "inactive")
        #expect(client.reasons(of: path) == ["launch-timeout"])
        // A late call is no error.
        try app.application(path, "FinishLaunching")
    }

    @Test("without a launch timeout there is no deadline", arguments: ["infinity"])
    func endless(_ span: String) throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nLaunchTimeoutSec=\(span)\n")
        let app = try App(daemon.bus)
        let path = try app.register()
        let explanation = try daemon.client().explain(path)
        #expect(explanation["launching"] == .bool(true))
        #expect(explanation["launch-deadline"] == nil)
    }

    @Test("an exit during the launch is no edge, because the application never ran")
    func exitDuringLaunch() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.ask("exit 3")
        #expect(try client.waitForRemoval(of: path) == "exited")
        #expect(client.story(of: path) == ["WillFinishLaunching", "DidFinishLaunching"])
        #expect(try client.list() == [])
    }

    @Test("a stop during the launch pauses its timer and changes no state, and the launch goes on after it")
    func stopDuringLaunch() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nLaunchTimeoutSec=10min\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try client.call(path, BusNames.properties, "GetAll") { try $0.append(BusNames.application) }
        try client.settle()
        client.forget()

        app.process.kill(SIGSTOP)
        // Only the hold shows.
        try client.wait("the hold") { try client.explain(path)["stopped"] == .bool(true) }
        var explanation = try client.explain(path)
        #expect(explanation["state"] == .string("not-running"))
        #expect(explanation["launch-deadline"] == nil)
        #expect(client.edges(of: path) == [])

        app.process.kill(SIGCONT)
        try client.wait("the hold's end") { try client.explain(path)["stopped"] == .bool(false) }
        explanation = try client.explain(path)
        #expect(explanation["launch-deadline"] != nil)
        try app.application(path, "FinishLaunching")
        #expect(try client.state(path) == "inactive")
    }

    @Test("a later BecomeDelegate starts no launch and gets no past signals")
    func lateDelegate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try client.register("org.example.Actor", app.pid)
        try client.wait(for: path, toBe: "background")
        try app.application(path, "BecomeDelegate")
        try app.settle()
        #expect(app.story(of: path) == [])
        #expect(try client.state(path) == "background")
        try client.setFocus(app.pid)
        try app.settle()
        #expect(
            app.story(of: path) == [
                "WillEnterForeground", "background→inactive", "inactive→active", "DidBecomeActive",
            ])
    }
}

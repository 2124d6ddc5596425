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

    @Test("WillFinishLaunching carries the launch options to the delegate")
    func launchOptions() throws {
        let daemon = try TestDaemon()
        let app = try App(daemon.bus)
        _ = try app.register("org.example.Editor", "launch-options=large:7")
        try app.settle()
        let carried = app.lines.filter { $0.hasPrefix("options WillFinishLaunching ") }
        #expect(carried.count == 1 && carried[0].contains("="), "\(carried)")
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
}

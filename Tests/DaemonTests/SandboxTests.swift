import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

/// The same user is not the same trust: a sandboxed process controls what is inside its sandbox, and nothing else.
@Suite("Sandboxes", .enabled(if: App.canBeOthers, App.whatOthersNeed))
struct SandboxTests {
    private static let noSuchApplication = ErrorName.noSuchApplication.rawValue

    /// Every call that an application may make for itself.
    private static let calls = [
        "\(BusNames.application) FinishLaunching", "\(BusNames.application) BecomeDelegate",
        "\(BusNames.application) Acknowledge t:1", "\(BusNames.application) BeginBackgroundTask s:task",
        "\(BusNames.application) EndBackgroundTask t:1", "\(BusNames.application) BackgroundTimeRemaining",
        "\(BusNames.application) ScheduleLaunch s:network {}", "\(BusNames.application) AnswerPings",
        "\(BusNames.application) SetUnsavedChanges b:true",
        "\(BusNames.application) Explain", "\(BusNames.properties) GetAll s:",
        "\(BusNames.properties) Get s:\(BusNames.application) s:State", "\(BusNames.application) Suspend",
        "\(BusNames.application) Resume", "\(BusNames.application) Terminate b:true",
        "\(BusNames.application) ListObjections", "\(BusNames.application) Unregister",
        "org.freedesktop.DBus.Introspectable Introspect",
    ]

    @Test("a sandboxed process does not control the application that started it")
    func starter() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        // Its process is unshare(1), outside the sandbox that AppActor is in.
        let app = try App(daemon.bus, isSandboxed: true)
        let path = try client.register("org.example.Starter", app.pid)
        for call in Self.calls {
            #expect(errorName { try app.ask("call \(path) \(call)") } == Self.noSuchApplication, "\(call)")
        }
        #expect(errorName { try app.manager("GetApplicationByPID u:\(app.pid)") } == Self.noSuchApplication)
        #expect(try app.manager("ListApplications") == "")
        #expect(try client.state(path) == "background")
        #expect(try client.explain(path)["delegate"] == .string(""))
        // It can become an application itself, and then controls that application fully.
        let own = try app.register()
        #expect(own != path)
        try app.application(own, "FinishLaunching")
        try app.application(own, "BecomeDelegate")
        try app.ask("call \(own) \(BusNames.properties) GetAll s:")
        #expect(try app.manager("ListApplications") == own)
        #expect(errorName { try app.application(path, "Explain") } == Self.noSuchApplication)
        // So does a process that it forks, over a connection of its own.
        _ = try app.make("descend")
        try app.application(own, "BecomeDelegate")
        let task = try app.application(own, "BeginBackgroundTask s:task")
        try app.application(own, "EndBackgroundTask t:\(task)")
        #expect(errorName { try app.application(path, "Unregister") } == Self.noSuchApplication)
        try app.application(own, "Unregister")
        #expect(try client.list().count == 1)
    }

    @Test("a sandboxed process has nothing opened outside of its sandbox, whatever id it registers under")
    func opening() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let agent = try AgentStandIn(client)
        let app = try App(daemon.bus, isSandboxed: true)
        let open = "Open as:file:///tmp/payload {}"
        let own = try app.register("org.example.Wine", "delegate=b:false,launch-mode=s:background")
        #expect(errorName { try app.application(own, open) } == ErrorName.notSupported.rawValue)
        try client.settle()
        // Its delegate is inside.
        try app.application(own, "BecomeDelegate")
        app.tell("call \(own) \(BusNames.application) \(open)")
        try client.wait("the URLs") { app.story(of: own).contains("OpenURLs") }
        try client.wait("the window to be asked for") { !agent.presented.isEmpty }
        #expect(agent.presented.allSatisfy { $0.options["urls"] == nil } && agent.started.isEmpty)
    }

    @Test("an object manager in a sandbox follows the sandbox's own application, and no other")
    func objectManager() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let other = try Child("sleep", ["1000"])
        let outside = try client.register("org.example.Outside", other.pid)
        let app = try App(daemon.bus, isSandboxed: true)
        func all() throws -> String {
            try app.ask("call \(BusNames.root) \(BusNames.objectManager) GetManagedObjects")
        }
        func changes(_ path: String) -> Int {
            app.lines.count { $0.hasPrefix("signal \(path) \(BusNames.properties) PropertiesChanged") }
        }
        func objects(_ member: String) -> [String] {
            app.lines.filter { $0.hasPrefix("signal \(BusNames.root) \(BusNames.objectManager) \(member)") }
        }
        _ = try all()
        // One that is registered later, and one that is there already.
        for isLater in [true, false] {
            let own = try app.register("org.example.Inside\(isLater)")
            try app.settle()
            #expect(objects("InterfacesAdded").contains { $0.contains(own) })
            if !isLater { _ = try all() }
            try app.application(own, "FinishLaunching")
            try client.setMinimized(other.pid, true)
            try client.settle()
            try app.settle()
            #expect(changes(own) > 0 && changes(outside) == 0)
            try client.application(own, "Unregister")
            try app.settle()
            #expect(objects("InterfacesRemoved").contains { $0.contains(own) })
        }
        try client.application(outside, "Unregister")
        try app.settle()
        #expect(!objects("Interfaces").contains { $0.contains(outside) })
    }

    @Test("a sandboxed process may not use what is for other callers")
    func others() throws {
        let daemon = try TestDaemon()
        let app = try App(daemon.bus, isSandboxed: true)
        let own = try app.register()
        for words in [
            "Subscribe", "ReloadConfig", "RegisterLauncher s:none", "RegisterPresenter s:none",
            "Launch s:org.example.App {}",
            "GetHistory s:org.example.Actor", "ListHistory {}", "ForgetApplication s:org.example.Actor",
            "ListScheduledLaunches", "CancelLaunch s:org.example.Actor s:name",
        ] {
            #expect(errorName { try app.manager(words) } == ErrorName.accessDenied.rawValue, "\(words)")
        }
        for words in ["SetFocus u:0", "UpdateWindow t:1 u:\(app.pid) {}", "RemoveWindow t:1"] {
            #expect(errorName { try app.reporter(words) } == ErrorName.accessDenied.rawValue, "\(words)")
        }
        for words in [
            "Suspend", "Resume", "Toggle {}", "ListObjections", "Configure {}", "CancelTask t:1",
            "Terminate b:true", "Activate {}", "ListWindows", "Inhibit s:make s:build",
        ] {
            let name = errorName { try app.application(own, words) }
            #expect(name == ErrorName.accessDenied.rawValue, "\(words)")
        }
    }
}

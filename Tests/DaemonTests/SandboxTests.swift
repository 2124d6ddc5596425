import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Same user is not same trust: a sandbox has a say in what is inside of it, and in nothing else.
@Suite("Sandboxes", .enabled(if: App.canBeOthers, App.whatOthersNeed))
struct SandboxTests {
    private static let noSuchApplication = ErrorName.noSuchApplication.rawValue

    /// Everything that an application may ask for itself.
    private static let calls = [
        "\(BusNames.application) FinishLaunching", "\(BusNames.application) BecomeDelegate",
        "\(BusNames.application) Acknowledge t:1", "\(BusNames.application) BeginBackgroundTask s:task",
        "\(BusNames.application) EndBackgroundTask t:1", "\(BusNames.application) BackgroundTimeRemaining",
        "\(BusNames.application) SetUnsavedChanges b:true",
        "\(BusNames.application) Explain", "\(BusNames.properties) GetAll s:",
        "\(BusNames.properties) Get s:\(BusNames.application) s:State", "\(BusNames.application) Suspend",
        "\(BusNames.application) Resume", "\(BusNames.application) Terminate b:true",
        "\(BusNames.application) CanSuspend", "\(BusNames.application) Unregister",
        "org.freedesktop.DBus.Introspectable Introspect",
    ]

    @Test("a sandboxed process has no say in the application that started it")
    func starter() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        // Its process is unshare(1), outside of the sandbox, which AppActor is in.
        let app = try App(daemon.bus, isSandboxed: true)
        let path = try client.register("org.example.Starter", app.pid)
        for call in Self.calls {
            #expect(errorName { try app.ask("call \(path) \(call)") } == Self.noSuchApplication, "\(call)")
        }
        #expect(errorName { try app.manager("GetApplicationByPID u:\(app.pid)") } == Self.noSuchApplication)
        #expect(try app.manager("ListApplications") == "")
        #expect(try client.state(path) == "background")
        #expect(try client.explain(path)["delegate"] == .string(""))
        // It can be one itself, and then has all say in that.
        let own = try app.register()
        #expect(own != path)
        try app.application(own, "FinishLaunching")
        try app.application(own, "BecomeDelegate")
        try app.ask("call \(own) \(BusNames.properties) GetAll s:")
        #expect(try app.manager("ListApplications") == own)
        #expect(errorName { try app.application(path, "Explain") } == Self.noSuchApplication)
        // So has a process that it makes, from a connection of its own.
        _ = try app.make("descend")
        try app.application(own, "BecomeDelegate")
        let task = try app.application(own, "BeginBackgroundTask s:task")
        try app.application(own, "EndBackgroundTask t:\(task)")
        #expect(errorName { try app.application(path, "Unregister") } == Self.noSuchApplication)
        try app.application(own, "Unregister")
        #expect(try client.list().count == 1)
    }
}

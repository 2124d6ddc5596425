import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// A user's applications do not exist for another user: not in a list, not in an error, not in a signal.
@Suite(
    "What other users see", .enabled(if: App.canBeOthers, App.whatOthersNeed),
    .enabled(if: Programs.inPath("busctl") != nil, "needs busctl"))
struct VisibilityTests {
    /// Three users: root, whose application has the focus and whose client sees everything; a user with an
    /// application of their own; and the user nobody, who has none and looks for the others'.
    private struct Scene {
        let stage: Stage
        let owner: App
        /// The owner's application.
        let path: String
        let nobody: App

        init() throws {
            stage = try Stage()
            owner = try App(stage.daemon.bus, uid: VisibilityTests.ordinary)
            path = try owner.register("org.example.Ordinary")
            try owner.application(path, "FinishLaunching")
            try owner.reporter("SetFocus u:\(owner.pid)")
            nobody = try App(stage.daemon.bus, uid: App.nobody)
        }

        /// Both applications, which the user nobody must not find.
        var targets: [(path: String, pid: Int32)] { [(stage.path, stage.process.pid), (path, owner.pid)] }

        /// The output of busctl, run by the user nobody.
        func busctl(_ arguments: [String]) throws -> String {
            try stage.daemon.busctl(arguments, uid: App.nobody).output
        }

        /// Runs an action that must change no fact and no hold of any application, and must send no signal.
        func changesNothing(_ what: String, _ act: () throws -> Void) throws {
            let before = try stage.client.picture()
            let holds = try targets.map { try stage.client.holds($0.path) }
            try stage.client.catchUp()
            try act()
            try stage.client.settle()
            #expect(stage.client.received == [], "\(what)")
            #expect(try stage.client.picture() == before, "\(what)")
            #expect(try targets.map { try stage.client.holds($0.path) } == holds, "\(what)")
        }
    }

    /// A user who is neither root nor nobody.
    private static let ordinary: UInt32 = getpwnam("daemon")?.pointee.pw_uid ?? 1

    // MARK: Lists

    @Test("each user's list has the user's own applications, and root's has all")
    func eachItsOwn() throws {
        let scene = try Scene()
        let own = try scene.nobody.register("org.example.Own")
        let rows = try scene.stage.client.list().map { $0.split(separator: " ").map(String.init) }
        #expect(Set(rows.map { $0[0] }) == [scene.stage.path, scene.path, own])
        #expect(Set(rows.map { $0[3] }) == ["0", "\(Self.ordinary)", "\(App.nobody)"])
        let seen = try scene.busctl(["--list", "tree", BusNames.service]).split(separator: "\n")
        #expect(seen.filter { $0.hasPrefix(BusNames.applications + "/") } == [Substring(own)])
    }

    // MARK: Objects

    @Test("every method of another user's application fails with NoSuchApplication and changes nothing")
    func methods() throws {
        let scene = try Scene()
        let methods = try Description.methods(BusNames.application)
        for target in scene.targets {
            for method in methods {
                let words = try #require(method.words(pid: scene.nobody.pid))
                try scene.stage.refuses(.noSuchApplication, "\(words) on \(target.path)") {
                    try scene.nobody.application(target.path, words)
                }
            }
        }
    }

    @Test("reading another user's properties or introspection data fails with NoSuchApplication")
    func properties() throws {
        let scene = try Scene()
        let names = try Description.documented(BusNames.application).filter { $0.hasPrefix("property ") }
            .compactMap { $0.split(separator: " ").dropFirst().first }
        #expect(names.count > 10)
        for target in scene.targets {
            let calls =
                names.map { "\(BusNames.properties) Get s:\(BusNames.application) s:\($0)" }
                + ["", BusNames.application].map { "\(BusNames.properties) GetAll s:\($0)" }
                + ["org.freedesktop.DBus.Introspectable Introspect"]
            for call in calls {
                try scene.stage.refuses(.noSuchApplication, "\(call) on \(target.path)") {
                    try scene.nobody.ask("call \(target.path) \(call)")
                }
            }
        }
    }

    // MARK: Processes

    @Test("reports about another user's processes change nothing")
    func reports() throws {
        let scene = try Scene()
        for target in scene.targets {
            try scene.changesNothing("reports of \(target.path)") {
                try scene.nobody.reporter("SetFocus u:\(target.pid)")
                for minimized in [true, false] {
                    #expect(throws: BusFailure.self) {
                        try scene.nobody.reporter("SetMinimized u:\(target.pid) b:\(minimized)")
                    }
                }
                try scene.nobody.reporter("UpdateWindow t:7 u:\(target.pid) {focused=b:true}")
                try scene.nobody.reporter("RemoveWindow t:7")
                let said = try scene.busctl([
                    "call", BusNames.service, BusNames.root, BusNames.reporter, "ReplaceWindows",
                    "a(tua{sv})", "1", "7", "\(target.pid)", "1", "focused", "b", "true",
                ])
                #expect(said == "")
                try scene.nobody.reporter("SetFocus u:0")
            }
        }
    }

    // MARK: Signals

    @Test(
        "a subscriber gets no signal of another user's application during its whole life",
        .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"),
        .enabled(if: Scripts.othersCanRun, "another user cannot read the source tree"))
    func signals() throws {
        let stage = try Stage()
        let listener = try Scripts.start("listen.py", on: stage.daemon.bus, uid: App.nobody)
        #expect(try listener.waitForLine(containing: "ready") == "ready 0 /")
        let owner = try App(stage.daemon.bus, uid: Self.ordinary)
        try live(owner, stage.client)
        // The service sends to each client in order, so this arrives after all that was sent before.
        let own = try App(stage.daemon.bus, uid: App.nobody)
        let path = try own.register("org.example.Own")
        try listener.waitForLine(containing: "ApplicationAdded \(BusNames.root) \(path)")
        let heard = listener.output.split(separator: "\n").dropFirst()
        #expect(heard.first == "ApplicationAdded \(BusNames.root) \(path) org.example.Own \(own.pid)")
    }

    /// Takes an application through every state, with every kind of signal that goes to more than its delegate.
    private func live(_ owner: App, _ root: Client) throws {
        let path = try owner.register("org.example.Ordinary")
        try owner.application(path, "FinishLaunching")
        try owner.reporter("SetFocus u:\(owner.pid)")
        try owner.reporter("SetMinimized u:\(owner.pid) b:true")
        try owner.reporter("SetMinimized u:\(owner.pid) b:false")
        try owner.reporter("SetFocus u:0")
        try root.application(path, "Suspend")
        try root.application(path, "Resume")
        owner.process.kill(SIGSTOP)
        try root.wait(for: path, toBe: "suspended")
        owner.process.kill(SIGCONT)
        try root.wait("the end of the stop") { root.edges(of: path).last?.hasPrefix("suspended→") == true }
        owner.process.kill(SIGKILL)
        try root.waitForRemoval(of: path)
        let states = Set(root.edges(of: path).compactMap { $0.split(separator: "→").first.map(String.init) })
        #expect(states == Set(LifeCycleState.allCases.map(\.rawValue)))
    }

    @Test(
        "a connection that another process has opened and handed over sees nothing and does nothing",
        .enabled(if: Scripts.haveGI, "needs python3-gi"))
    func handedOver() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        let path = try client.register("org.example.App", process.pid)
        let script = try Scripts.start("handed_over.py", [path], on: daemon.bus)
        #expect(try script.waitForExit() == .exited(0))
        let refused = ErrorName.noSuchApplication.rawValue
        #expect(
            script.output == """
                listed ([],)
                Suspend \(refused)
                Resume \(refused)
                Unregister \(refused)

                """)
        #expect(try client.state(path) == "background")
    }
}

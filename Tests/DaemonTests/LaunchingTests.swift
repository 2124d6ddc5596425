import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

/// Launch, and what is sent to applications, with a stand-in for the session agent.
@Suite("Launching", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct LaunchingTests {
    private static let id = "org.example.Editor"

    /// A daemon, and an agent that gives an `App` to each launch.
    private final class Scene {
        let daemon: TestDaemon
        let agent: AgentStandIn
        var client: Client { agent.client }
        /// Those that were launched.
        private(set) var apps: [App] = []
        /// For the next launch: it may take longer to start than the daemon waits for the agent.
        private var spare: App?

        init(_ configuration: String = "") throws {
            daemon = try TestDaemon(configuration: configuration, keeps: true)
            agent = try AgentStandIn(try daemon.subscriber())
            agent.start = { [unowned self] _, _ in
                let app = try spare ?? App(daemon.bus)
                spare = nil
                apps.append(app)
                return app.pid
            }
            try prepare()
        }

        /// Starts the `App` for the next launch.
        func prepare() throws { spare = try App(daemon.bus) }

        /// A launched application whose process has registered itself and finished its launch.
        func launched(_ options: [(String, Variant)] = []) throws -> (app: App, path: String) {
            let path = try agent.launch(LaunchingTests.id, options)
            let app = apps[apps.count - 1]
            _ = try app.register(LaunchingTests.id)
            try app.application(path, "FinishLaunching")
            return (app, path)
        }

        func options(_ path: String) throws -> [String: Variant] {
            guard
                case .dictionary(let options) = try client.property(
                    path, BusNames.application, "LaunchOptions")
            else { return [:] }
            return options
        }

        /// The members of the signals that an application was sent, without the changes of its state.
        func signals(_ app: App) -> [String] {
            app.lines.filter { $0.hasPrefix("signal ") }.compactMap { line in
                let words = line.split(separator: " ")
                guard words.count > 3, words[2] == BusNames.application, words[3] != "StateChanged" else {
                    return nil
                }
                return words.dropFirst(3).joined(separator: " ")
            }
        }
    }

    @Test("a process is an application before its gate opens, and its first window ends its launch")
    func unaware() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(
            Self.id, [("urls", .strings(["file:///a", "https://b.example/c"]))])
        let app = scene.apps[0]
        try scene.client.wait("the gate to open") { scene.agent.proceeded == [1] }
        #expect(scene.agent.cancelled == [])
        #expect(
            scene.agent.started == [
                [
                    "urls": .strings(["file:///a", "https://b.example/c"]),
                    "launch-mode": .string("foreground"),
                ]
            ])
        let first = try #require(scene.client.received.first { $0.member == "ApplicationAdded" })
        #expect(first.arguments == [path, Self.id, "\(app.pid)"])
        #expect(try scene.client.state(path) == "not-running")
        #expect(
            try scene.options(path) == ["reason": .string("url"), "first-launch": .bool(true)])
        #expect(try app.launchOptions(path, contain: "https://b.example/c"))
        try scene.client.updateWindow(1, app.pid, [("visible", .bool(true))])
        try scene.client.wait(for: path, toBe: "inactive")
        #expect(scene.client.edges(of: path) == ["not-running→inactive"])
    }

    @Test(
        "a launched process's own registration keeps the object and the launch options, and gets the URLs"
    )
    func takenOver() throws {
        let scene = try Scene()
        let urls: [(String, Variant)] = [
            ("urls", .strings(["note:1"])), ("payload", .dictionary(["line": .uint32(7)])),
        ]
        let path = try scene.agent.launch(Self.id, urls)
        let app = scene.apps[0]
        #expect(try app.register(Self.id) == path)
        #expect(try scene.client.state(path) == "not-running")
        #expect(try scene.client.property(path, BusNames.application, "Suspension") == .string("automatic"))
        try app.ask("settle")
        #expect(scene.signals(app) == ["WillFinishLaunching", "DidFinishLaunching"])
        try app.application(path, "FinishLaunching")
        try app.ask("settle")
        #expect(
            scene.signals(app) == [
                "WillFinishLaunching", "DidFinishLaunching", "WillEnterForeground", "OpenURLs",
            ])
        try scene.client.wait(for: path, toBe: "inactive")
        #expect(scene.client.edges(of: path) == ["not-running→inactive"])
        #expect(scene.client.received.filter { $0.member == "ApplicationAdded" }.count == 1)
        // It cannot be taken over a second time.
        #expect(errorName { _ = try app.register(Self.id) } == ErrorName.alreadyRegistered.rawValue)
    }

    @Test(
        "a launch without a window in time is announced, and ended if the configuration says so"
    )
    func slow() throws {
        let scene = try Scene("[LifeCycle]\nLaunchTimeoutSec=200ms\n")
        // Without a reporter no window could be reported.
        try scene.client.updateWindow(7, getpid(), [("visible", .bool(true))])
        let path = try scene.agent.launch(Self.id)
        try scene.client.wait(for: path, toBe: "inactive")
        #expect(scene.client.received.contains { $0.member == "DidBecomeUnresponsive" && $0.path == path })
        let strict = try Scene("[LifeCycle]\nLaunchTimeoutSec=200ms\nLaunchTimeoutAction=terminate\n")
        try strict.client.updateWindow(7, getpid(), [("visible", .bool(true))])
        let ended = try strict.agent.launch(Self.id)
        try strict.client.waitForRemoval(of: ended)
        #expect(
            strict.client.received.last { $0.member == "ApplicationRemoved" }?.arguments.last
                == "unresponsive")
    }

    @Test("Launch presents an application that already runs, and its delegate opens the URLs")
    func running() throws {
        let scene = try Scene()
        let (app, path) = try scene.launched()
        let again = try scene.agent.launch(
            Self.id, [("urls", .strings(["note:2"])), ("activation-token", .string("token"))])
        #expect(again == path)
        #expect(scene.apps.count == 1)
        #expect(scene.agent.presented.map(\.pid) == [UInt32(app.pid)])
        #expect(scene.agent.presented[0].options == ["activation-token": .string("token")])
        try app.ask("settle")
        #expect(scene.signals(app).last == "OpenURLs")
        let token = Variant.string("token")
        #expect(app.lines.contains("options OpenURLs activation-token=\(token)"))
    }

    @Test("without a delegate the agent opens the URLs, and its refusal is passed on")
    func runningUnaware() throws {
        // Open waits for the end of the launch, and this one has no other.
        let scene = try Scene("[LifeCycle]\nLaunchTimeoutSec=1s\n")
        let path = try scene.agent.launch(Self.id)
        try scene.agent.open(path, ["note:1"])
        #expect(scene.agent.opened.map(\.options) == [["urls": .strings(["note:1"])]])
        #expect(scene.agent.presented.map(\.options) == [[:]])
        scene.agent.openError = MethodError(ErrorName.notSupported.rawValue, "no")
        #expect(
            errorName { try scene.agent.open(path, ["note:2"]) } == "\(ErrorName.notSupported.rawValue): no")
        let refused = errorName {
            try scene.client.application(path, "SendMessage") {
                try $0.append("hello")
                try $0.appendDictionary([])
            }
        }
        #expect(refused == ErrorName.notSupported.rawValue)
    }

    @Test("a program without a delegate that is suspended on request is given no URLs")
    func suspendedUnaware() throws {
        let scene = try Scene()
        // In the background it counts as launched at once.
        let path = try scene.agent.launch(Self.id, [("launch-mode", .string("background"))])
        try scene.client.application(path, "Suspend")
        for open in [
            { try scene.agent.open(path, ["note:1"]) },
            { _ = try scene.agent.launch(Self.id, [("urls", .strings(["note:1"]))]) },
        ] {
            #expect(errorName(of: open)?.hasPrefix(ErrorName.failed.rawValue) == true)
        }
        #expect(scene.agent.opened.isEmpty)
        try scene.client.application(path, "Resume")
        try scene.agent.open(path, ["note:1"])
        #expect(scene.agent.opened.count == 1)
    }

    @Test("a compositor presents and minimizes without launching; what has no window is asked to show one")
    func presenter() throws {
        let scene = try Scene()
        let (app, path) = try scene.launched()
        try app.ask("settle")
        // The newest presenter is asked.
        let compositor = try AgentStandIn(scene.daemon.client(), [.registerPresenter])
        func launchAgain() throws {
            let begun = try compositor.begin(BusNames.root, BusNames.manager, "Launch") {
                try $0.append(Self.id)
                try $0.appendDictionary([])
            }
            try compositor.client.wait("the answer to Launch") {
                try scene.client.loop.runOnce(timeout: 0)
                return begun.answer != nil
            }
            #expect(try begun.answer?.get() == path)
        }
        try launchAgain()
        #expect(compositor.presented.map(\.pid) == [UInt32(app.pid)])
        #expect(scene.agent.presented.isEmpty && scene.agent.opened.isEmpty)
        compositor.hasWindow = false
        try launchAgain()
        #expect(scene.agent.opened.map(\.pid) == [UInt32(app.pid)])
        #expect(scene.agent.opened.first?.options.isEmpty == true)

        // It is suspended once it has left.
        let toggle = try compositor.begin(path, BusNames.application, "Toggle") {
            try $0.appendDictionary([("minimize", .bool(true))])
        }
        try compositor.client.wait("Leave") { compositor.leaving != nil }
        #expect(compositor.left == [AgentStandIn.Left(pid: UInt32(app.pid), minimize: true)])
        #expect(try scene.client.holds(path) == [])
        compositor.leaving?.reply()
        try compositor.client.wait("the answer to Toggle") { toggle.answer != nil }
        #expect(try scene.client.holds(path) == ["toggle uid:\(getuid())"])
    }

    @Test("a failed launch gives the agent's error; without an agent it gives NoSessionAgent")
    func refused() throws {
        let scene = try Scene()
        scene.agent.start = { id, _ in throw MethodError(ErrorName.noSuchApplication.rawValue, "No \(id)") }
        let name = ErrorName.noSuchApplication.rawValue
        #expect(errorName { _ = try scene.agent.launch(Self.id) }?.hasPrefix(name) == true)
        scene.agent.start = { _, _ in throw MethodError("org.example.Mine", "no") }
        #expect(
            errorName { _ = try scene.agent.launch(Self.id) }?.hasPrefix(ErrorName.failed.rawValue) == true)
        // This process cannot be the launched one, so its gate is closed.
        scene.agent.start = { _, _ in 1 }
        #expect(errorName { _ = try scene.agent.launch(Self.id) } != nil)
        try scene.client.wait("the gate to be closed") { scene.agent.cancelled.count == 1 }
        #expect(scene.agent.proceeded == [])
        let wrong: [[(String, Variant)]] = [
            [("url", .strings([]))], [("urls", .strings(["no url"]))], [("urls", .string("note:1"))],
            [("launch-mode", .string("sideways"))], [("reason", .string("because"))],
            [("payload", .uint32(1))], [("scene", .uint32(1))], [("scene", .string(""))],
            [("scene", .string("new")), ("launch-mode", .string("background"))],
        ]
        for options in wrong {
            let error = errorName { _ = try scene.agent.launch(Self.id, options) }
            #expect(error?.hasPrefix(ErrorName.invalidArgs.rawValue) == true, "\(options)")
        }
        // What the delegate is to be sent is checked before anything is started; the error names the key.
        for (reason, name, content) in [("activity", "type", "info"), ("message", "name", "payload")] {
            let payloads: [(String, [String: Variant])] = [
                (name, [:]), (name, [name: .uint32(1)]), (name, [name: .string("")]),
                (content, [name: .string("a"), content: .string("b")]),
            ]
            for (key, payload) in payloads {
                let error = errorName {
                    _ = try scene.agent.launch(
                        Self.id, [("reason", .string(reason)), ("payload", .dictionary(payload))])
                }
                #expect(
                    error?.hasPrefix("\(ErrorName.invalidArgs.rawValue): ") == true, "\(reason) \(payload)")
                #expect(error?.contains(key) == true, "\(error ?? "")")
            }
            let long = Variant.dictionary([name: .string(String(repeating: "x", count: 1_025))])
            let error = errorName {
                _ = try scene.agent.launch(Self.id, [("reason", .string(reason)), ("payload", long)])
            }
            #expect(error?.hasPrefix(ErrorName.limitsExceeded.rawValue) == true)
        }
        let lonely = try TestDaemon()
        let client = try Client(lonely.bus)
        let error = errorName {
            try client.call(BusNames.root, BusNames.manager, "Launch") {
                try $0.append(Self.id)
                try $0.appendDictionary([])
            }
        }
        #expect(error == ErrorName.noSessionAgent.rawValue)
    }

    @Test("what waits for a suspended application survives the daemon")
    func survives() throws {
        let scene = try Scene()
        let (app, path) = try scene.launched()
        try scene.client.application(path, "Suspend")
        try scene.client.application(path, "ContinueActivity") {
            try $0.append("org.example.reading")
            try $0.appendDictionary([("page", .uint32(3))])
        }
        try scene.daemon.end(SIGKILL)
        try scene.daemon.start()
        let client = try Client(scene.daemon.bus)
        try client.application(path, "Resume")
        try app.ask("settle")
        #expect(scene.signals(app).contains("ContinueUserActivity org.example.reading"))
        // The next daemon has the same object, and knows that the process has registered itself.
        #expect(errorName { _ = try app.register(Self.id) } == ErrorName.alreadyRegistered.rawValue)
    }

    @Test("the daemon, not the sender, fills in the sender of a message")
    func sender() throws {
        let scene = try Scene()
        let (app, path) = try scene.launched()
        let sender = try App(scene.daemon.bus)
        _ = try sender.register("org.example.Sender")
        _ = try sender.ask(
            "call \(path) \(BusNames.application) SendMessage s:hi {sender=s:org.example.Liar}")
        try app.ask("settle")
        #expect(scene.signals(app).last == "MessageReceived org.example.Sender hi")
    }

    @Test("a user activity is a property and survives the daemon")
    func activity() throws {
        let scene = try Scene()
        let (app, path) = try scene.launched()
        try app.application(path, "SetUserActivity s:org.example.reading {page=u:3}")
        let expected = Variant.structure([.string("org.example.reading"), .dictionary(["page": .uint32(3)])])
        #expect(try scene.client.property(path, BusNames.application, "UserActivity") == expected)
        let stranger = try Client(scene.daemon.bus)
        let error = errorName {
            try stranger.application(path, "SetUserActivity") {
                try $0.append("mine")
                try $0.appendDictionary([])
            }
        }
        #expect(error == ErrorName.notDelegate.rawValue)
        try scene.daemon.end(SIGUSR1)
        try scene.daemon.start()
        #expect(try Client(scene.daemon.bus).property(path, BusNames.application, "UserActivity") == expected)
        try app.application(path, "SetUserActivity s: {}")
        let none = Variant.structure([.string(""), .dictionary([:])])
        #expect(try Client(scene.daemon.bus).property(path, BusNames.application, "UserActivity") == none)
    }

    // MARK: What a reader has found

    @Test(
        "an application that is ending is launched again once it is gone, also by its bus name",
        arguments: [true, false])
    func ending(isHeld: Bool) throws {
        let scene = try Scene("[LifeCycle]\nTerminateGraceSec=10min\n")
        let (app, path) = try scene.launched()
        try scene.prepare()
        let next = scene.agent.start
        var isGone = false
        // As long as the process has the name, the session bus gives the agent that process.
        scene.agent.start = { id, options in try isHeld || isGone ? next(id, options) : app.pid }
        scene.agent.isHeld = isHeld
        try scene.client.terminate(path)
        let launch = try scene.agent.begin(BusNames.root, BusNames.manager, "Launch") {
            try $0.append(Self.id)
            try $0.appendDictionary([])
        }
        try scene.client.settle()
        #expect(scene.agent.started.count == 1 && launch.answer == nil)
        isGone = true
        let serial = try #require(try app.last("WillTerminate", of: path).first)
        app.tell("call \(path) \(BusNames.application) Acknowledge t:\(serial)")
        try scene.client.wait("the answer to Launch") { launch.answer != nil }
        let again = try #require(try launch.answer?.get())
        #expect(again != path && scene.agent.started.count == 2 && scene.apps.count == 2)
        #expect(try scene.options(again)["exit-reason"] == .string("terminated"))
    }

    @Test("what waits for an agent that leaves fails, and the next agent is asked")
    func agentLeaves() throws {
        let scene = try Scene()
        var calls: [AgentStandIn.Begun] = []
        do {
            let passing = try AgentStandIn(try Client(scene.daemon.bus))
            passing.isSilent = true
            calls = try (0..<10).map { number in
                try scene.agent.begin(BusNames.root, BusNames.manager, "Launch") {
                    try $0.append("org.example.App\(number)")
                    try $0.appendDictionary([])
                }
            }
            try passing.client.wait("the calls") { passing.unanswered.count == 10 }
        }
        try scene.client.wait("the failures") { calls.allSatisfy { $0.answer != nil } }
        for call in calls { #expect(throws: MethodError.self) { try call.answer?.get() } }
        _ = try scene.launched()
    }
}

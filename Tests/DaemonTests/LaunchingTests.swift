import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Launch, and what is sent to applications, by a session agent that stands in for the real one.
@Suite("Launching", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct LaunchingTests {
    private static let id = "org.example.Editor"

    /// A daemon, and an agent in whose place each launch starts an `App`.
    private final class Scene {
        let daemon: TestDaemon
        let agent: AgentStandIn
        var client: Client { agent.client }
        private(set) var apps: [App] = []

        init(_ configuration: String = "") throws {
            daemon = try TestDaemon(configuration: configuration, keeps: true)
            agent = try AgentStandIn(try daemon.subscriber())
            agent.start = { [unowned self] _, _ in
                apps.append(try App(daemon.bus))
                return apps[apps.count - 1].pid
            }
        }

        /// A launched application whose process has registered itself and launched.
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

    @Test("the process is an application before its gate opens, and its launch is over with its first window")
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
            try scene.options(path) == [
                "urls": .strings(["file:///a", "https://b.example/c"]), "reason": .string("url"),
                "first-launch": .bool(true),
            ])
        try scene.client.updateWindow(1, app.pid, [("visible", .bool(true))])
        try scene.client.wait(for: path, toBe: "inactive")
        #expect(scene.client.edges(of: path) == ["not-running→inactive"])
    }

    @Test("into the background, what says nothing of itself has launched at once")
    func background() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id, [("launch-mode", .string("background"))])
        try scene.client.wait(for: path, toBe: "background")
        #expect(try scene.options(path)["launch-mode"] == .string("background"))
        #expect(try scene.client.property(path, BusNames.application, "Suspension") == .string("manual"))
    }

    @Test(
        "its own registration takes the application over: same object, launch options, then what it was launched for"
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
        // Nobody takes it over a second time.
        #expect(errorName { _ = try app.register(Self.id) } == ErrorName.alreadyRegistered.rawValue)
    }

    @Test("in the background, its delegate learns of its launch and where it is")
    func takenOverInBackground() throws {
        let scene = try Scene("[LifeCycle]\nBackgroundGraceSec=300\n")
        let path = try scene.agent.launch(Self.id, [("launch-mode", .string("background"))])
        let app = scene.apps[0]
        #expect(try app.register(Self.id) == path)
        try app.application(path, "FinishLaunching")
        try app.ask("settle")
        let signals = scene.signals(app)
        #expect(
            signals.map { $0.prefix { $0 != " " } } == [
                "WillFinishLaunching", "DidFinishLaunching", "DidEnterBackground",
            ])
        let words = signals.last.map { $0.split(separator: " ") } ?? []
        try #require(words.count > 1)
        try app.application(path, "Acknowledge t:\(words[1])")
        try scene.client.wait(for: path, toBe: "suspended")
    }

    @Test(
        "another id than it was launched under makes it another application, which keeps what it was launched for"
    )
    func otherID() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id, [("urls", .strings(["note:1"]))])
        let app = scene.apps[0]
        let other = try app.register("org.example.Other")
        #expect(other != path)
        try scene.client.waitForRemoval(of: path)
        #expect(try scene.options(other)["urls"] == .strings(["note:1"]))
    }

    @Test(
        "a launch that shows no window in time is told to subscribers, and ended where the configuration says so"
    )
    func slow() throws {
        let scene = try Scene("[LifeCycle]\nLaunchTimeoutSec=200ms\n")
        // Without a reporter nobody could tell of a window.
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

    @Test("one that runs is shown, and its delegate opens the URLs")
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
    }

    @Test("one without a delegate has the URLs opened by the agent, whose refusal is told")
    func runningUnaware() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id)
        try scene.agent.open(path, ["note:1"])
        #expect(scene.agent.presented.map(\.options) == [["urls": .strings(["note:1"])]])
        scene.agent.presentError = MethodError(ErrorName.notSupported.rawValue, "no")
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

    @Test("a program without a delegate that somebody has suspended is given no URLs")
    func suspendedUnaware() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id)
        try scene.client.application(path, "Suspend")
        for open in [
            { try scene.agent.open(path, ["note:1"]) },
            { _ = try scene.agent.launch(Self.id, [("urls", .strings(["note:1"]))]) },
        ] {
            #expect(errorName(of: open)?.hasPrefix(ErrorName.failed.rawValue) == true)
        }
        #expect(scene.agent.presented.isEmpty)
        try scene.client.application(path, "Resume")
        try scene.agent.open(path, ["note:1"])
        #expect(scene.agent.presented.count == 1)
    }

    @Test("what cannot be started is refused by the agent's name; without an agent, by NoSessionAgent")
    func refused() throws {
        let scene = try Scene()
        scene.agent.start = { id, _ in throw MethodError(ErrorName.noSuchApplication.rawValue, "No \(id)") }
        let name = ErrorName.noSuchApplication.rawValue
        #expect(errorName { _ = try scene.agent.launch(Self.id) }?.hasPrefix(name) == true)
        scene.agent.start = { _, _ in throw MethodError("org.example.Mine", "no") }
        #expect(
            errorName { _ = try scene.agent.launch(Self.id) }?.hasPrefix(ErrorName.failed.rawValue) == true)
        // A process that is nobody's to launch: the gate is closed.
        scene.agent.start = { _, _ in 1 }
        #expect(errorName { _ = try scene.agent.launch(Self.id) } != nil)
        try scene.client.wait("the gate to be closed") { scene.agent.cancelled.count == 1 }
        #expect(scene.agent.proceeded == [])
        let wrong: [[(String, Variant)]] = [
            [("url", .strings([]))], [("urls", .strings(["no url"]))], [("urls", .string("note:1"))],
            [("launch-mode", .string("sideways"))], [("reason", .string("because"))],
            [("payload", .uint32(1))],
        ]
        for options in wrong {
            let error = errorName { _ = try scene.agent.launch(Self.id, options) }
            #expect(error?.hasPrefix(ErrorName.invalidArgs.rawValue) == true, "\(options)")
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

    @Test(
        "messages, activities and URLs have policy's suspended application run, and wait for a stop that is asked for"
    )
    func suspended() throws {
        let scene = try Scene("[LifeCycle]\nBackgroundGraceSec=0\n")
        let (app, path) = try scene.launched()
        try scene.client.setMinimized(app.pid, true)
        try scene.client.wait(for: path, toBe: "suspended")
        // Or it could be suspended again before it has said what the test asks it.
        try scene.daemon.reconfigure("[LifeCycle]\nBackgroundGraceSec=600\n")
        #expect(try scene.client.state(path) == "suspended")
        func send(_ name: String, _ text: String) throws {
            try scene.client.application(path, "SendMessage") {
                try $0.append(name)
                try $0.appendDictionary([("text", .string(text))])
            }
        }
        try send("hello", "one")
        try app.ask("settle")
        #expect(scene.signals(app).last == "MessageReceived hello")
        try scene.client.wait("it to run") { scene.client.edges(of: path).contains("suspended→background") }
        // Asked for, the suspension is not lifted: of each message the latest waits, of the URLs all do.
        try scene.client.application(path, "Suspend")
        try send("hello", "two")
        try send("other", "three")
        try send("hello", "four")
        try scene.agent.open(path, ["note:1"])
        try scene.agent.open(path, ["note:2"])
        #expect(try scene.client.state(path) == "suspended")
        scene.client.forget()
        try scene.client.application(path, "Resume")
        try app.ask("settle")
        let told = scene.signals(app).suffix(3)
        #expect(told == ["MessageReceived other", "MessageReceived hello", "OpenURLs"])
    }

    @Test("what waits for one that cannot read survives the daemon")
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
        // The next daemon knows it by its object, and that its process has registered itself.
        #expect(errorName { _ = try app.register(Self.id) } == ErrorName.alreadyRegistered.rawValue)
    }

    @Test("what waits for one application is bounded")
    func bounded() throws {
        let scene = try Scene()
        let (_, path) = try scene.launched()
        try scene.client.application(path, "Suspend")
        let text = String(repeating: "x", count: 1_000)
        var error: String?
        for number in 0..<100 where error == nil {
            error = errorName {
                try scene.client.application(path, "SendMessage") {
                    try $0.append("message\(number)")
                    try $0.appendDictionary([("text", .string(text))])
                }
            }
        }
        #expect(error == ErrorName.limitsExceeded.rawValue)
    }

    @Test("the sender of a message is the daemon's word")
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

    @Test("a user activity is a property, and outlives the daemon")
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

    @Test("another user opens nothing and sends nothing", .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func strangers() throws {
        let scene = try Scene()
        let (_, path) = try scene.launched()
        let stranger = try App(scene.daemon.bus, uid: App.nobody)
        let hidden = ErrorName.noSuchApplication.rawValue
        for call in [
            "Open as:note:1 {}", "SendMessage s:hi {}", "ContinueActivity s:a {}", "SetUserActivity s:a {}",
        ] {
            let error = errorName { _ = try stranger.ask("call \(path) \(BusNames.application) \(call)") }
            #expect(
                [hidden, "org.freedesktop.DBus.Error.UnknownObject"].contains(error),
                "\(call): \(error ?? "")")
        }
        #expect(
            errorName { try stranger.manager("Launch s:\(Self.id) {}") } == ErrorName.noSessionAgent.rawValue)
    }

    @Test(
        "a sandboxed process launches nothing, is no agent, and sends to itself alone",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func sandboxed() throws {
        let scene = try Scene()
        let (_, path) = try scene.launched()
        let sandboxed = try App(scene.daemon.bus, isSandboxed: true)
        let denied = ErrorName.accessDenied.rawValue
        #expect(errorName { try sandboxed.manager("Launch s:\(Self.id) {}") } == denied)
        #expect(errorName { try sandboxed.manager("RegisterAgent s:") } == denied)
        #expect(
            errorName { _ = try sandboxed.ask("call \(path) \(BusNames.application) SendMessage s:hi {}") }
                != nil)
        // Nor does it get what is meant for the application whose id it takes.
        let impostor = try sandboxed.register(Self.id)
        #expect(try scene.agent.launch(Self.id) == path)
        let found = try scene.client.manager("GetApplicationByID") { try $0.append(Self.id) }
        #expect(try found.readObjectPath() == path)
        try sandboxed.application(impostor, "Unregister")
        let own = try sandboxed.register("org.example.Inside")
        try sandboxed.application(own, "SendMessage s:hi {}")
    }

    // MARK: What a reader has found

    @Test(
        "an agent that only passes by takes nothing away, and one that answers nonsense costs no descriptor")
    func otherAgents() throws {
        let scene = try Scene()
        do {
            let passing = try Client(scene.daemon.bus)
            try passing.call(BusNames.root, BusNames.manager, "RegisterAgent") { try $0.append("") }
        }
        _ = try scene.agent.launch(Self.id)
        scene.agent.answersNonsense = true
        func descriptors() throws -> Int {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(scene.daemon.process.pid)/fd").count
        }
        let before = try descriptors()
        for _ in 0..<20 {
            #expect(errorName { _ = try scene.agent.launch("org.example.Other") } != nil)
        }
        // It may have a file open for a moment, then as now.
        try scene.client.wait("the descriptors") { try descriptors() <= before + 1 }
    }

    @Test("a program that does not run after all is no application, and its launch has failed")
    func gateStaysShut() throws {
        let scene = try Scene()
        scene.agent.proceedError = MethodError(ErrorName.failed.rawValue, "the gate is stuck")
        #expect(errorName { _ = try scene.agent.launch(Self.id) }?.contains("the gate is stuck") == true)
        #expect(try scene.client.list() == [])
        try scene.client.wait("the process to be ended") { scene.agent.cancelled == [1] }
    }

    @Test("two calls at once that show one application are both answered")
    func twice() throws {
        let scene = try Scene()
        let (app, path) = try scene.launched()
        let first = try scene.agent.begin(BusNames.root, BusNames.manager, "Launch") {
            try $0.append(Self.id)
            try $0.appendDictionary([])
        }
        #expect(try scene.agent.launch(Self.id) == path)
        try scene.client.wait("the first answer") { first.answer != nil }
        #expect(try first.answer?.get() == path)
        withExtendedLifetime(app) {}
    }

    @Test("what is sent while it is being launched waits until it is known who is to be told")
    func whileLaunching() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id)
        let open = try scene.agent.begin(path, BusNames.application, "Open") {
            try $0.append(strings: ["note:2"])
            try $0.appendDictionary([])
        }
        let app = scene.apps[0]
        _ = try app.register(Self.id)
        try app.application(path, "FinishLaunching")
        try scene.client.wait("the answer to Open") { open.answer != nil }
        #expect(try open.answer?.get() != nil)
        try app.ask("settle")
        #expect(scene.signals(app).last == "OpenURLs")
        #expect(scene.agent.presented.allSatisfy { $0.options["urls"] == nil })
    }

    @Test(
        "without a delegate, its own registration is the end of its launch, and so is a delegate that comes in between"
    )
    func noDelegate() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id)
        _ = try scene.apps[0].register(Self.id, "delegate=b:false")
        try scene.client.wait(for: path, toBe: "inactive")
        let other = try scene.agent.launch("org.example.Other")
        try scene.apps[1].application(other, "BecomeDelegate")
        try scene.client.wait(for: other, toBe: "inactive")
    }

    @Test(
        "a child that registers itself under the id of the wrapper that was launched is told what that was launched for"
    )
    func wrapper() throws {
        let scene = try Scene()
        let path = try scene.agent.launch(Self.id, [("urls", .strings(["note:1"]))])
        let app = scene.apps[0]
        _ = try app.make("descend")
        let own = try app.register(Self.id)
        #expect(own != path)
        #expect(try scene.options(own)["urls"] == .strings(["note:1"]))
        try app.application(own, "FinishLaunching")
        try app.ask("settle")
        #expect(app.story(of: own).contains("OpenURLs"))
        try scene.client.wait(for: path, toBe: "background")
    }

    @Test("a user has 32 calls wait for session agents, and others' calls are taken")
    func manyCalls() throws {
        let scene = try Scene()
        scene.agent.isSilent = true
        var calls: [AgentStandIn.Begun] = []
        for number in 0..<40 {
            calls.append(
                try scene.agent.begin(BusNames.root, BusNames.manager, "Launch") {
                    try $0.append("org.example.App\(number % 4)")
                    try $0.appendDictionary([])
                })
        }
        try scene.client.wait("refusals") { calls.filter { $0.answer != nil }.count == 8 }
        for call in calls where call.answer != nil {
            #expect(throws: MethodError.self) { try call.answer?.get() }
        }
    }
}

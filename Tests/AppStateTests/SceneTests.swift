import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Scenes with the library, and a stand-in for the daemon.
@Suite("Scenes", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct SceneTests {
    /// A launched application with scenes.
    private struct Stage {
        let daemon: StandIn
        let player: Player
        /// The ids of the scenes, in the order in which they were connected, stand for `a`, `b`, `c`.
        private var letters: [String: String] = [:]
        private var read = 0

        /// - Parameter stored: what an earlier run has saved.
        init(_ options: [(String, Variant)] = [], stored: [UInt8]? = nil) throws {
            daemon = try StandIn()
            if let stored { daemon.stored = stored }
            player = try Player(bus: daemon.bus, ["--scenes"])
            let restorable: [(String, Variant)] = stored == nil ? [] : [("restorable", .bool(true))]
            try daemon.launch(options + restorable)
        }

        func change(_ from: String, _ to: String) throws {
            daemon.state = to
            try daemon.tell(.stateChanged) { message in
                for word in [from, to, "windows"] { try message.append(word) }
            }
        }

        func enterForeground() throws {
            try daemon.tell(.willEnterForeground)
            try change("background", "inactive")
        }

        func activate() throws {
            try change("inactive", "active")
            try daemon.tell(.didBecomeActive)
        }

        func deactivate() throws {
            try daemon.tell(.willResignActive)
            try change("active", "inactive")
        }

        func enterBackground(_ serial: UInt64) throws {
            try change("inactive", "background")
            try daemon.tell(.didEnterBackground, serial: serial)
            try daemon.wait("the acknowledgement") { daemon.acknowledged.last == serial }
        }

        /// Waits until everything that was sent has arrived.
        func settle() throws {
            let count = player.names.count { $0 == "significantTimeChange" }
            try daemon.tell(.significantTimeChange) { try $0.append("midnight") }
            try player.wait(for: "significantTimeChange", times: count + 1)
        }

        /// The callbacks since the last call: those of the application by name, those of a scene with its letter and
        /// state.
        mutating func told() throws -> [String] {
            try settle()
            let story = player.story
            defer { read = story.count }
            return story[read...].compactMap { line in
                var words = line.split(separator: " ").map(String.init)
                guard words[0] != "significantTimeChange", words[0] != "configuration" else { return nil }
                words.remove(at: 1)
                guard words[0].hasPrefix("scene"), words.count > 1 else { return words[0] }
                let letter = letters[words[1]] ?? String(UnicodeScalar(UInt8(97 + letters.count)))
                letters[words[1]] = letter
                words[1] = letter
                return words.joined(separator: " ")
            }
        }

        func scenes() throws -> [String] { try player.ask("scenes").split(separator: " ").map(String.init) }
        func id(_ number: Int) throws -> String {
            let scenes = try scenes()
            return String(try #require(scenes.dropFirst(number).first).prefix { $0 != ":" })
        }
    }

    @Test("the application goes first on the way up, and its scenes on the way down, whoever reports first")
    func order() throws {
        var stage = try Stage()
        try stage.player.ask("scene second")
        try stage.player.ask("window 0 active")
        try stage.player.ask("window 1 visible")
        #expect(
            try stage.told() == [
                "willFinishLaunching", "didFinishLaunching", "sceneWillConnect a unattached - -",
                "sceneWillConnect b unattached - second",
            ])
        try stage.enterForeground()
        #expect(
            try stage.told() == [
                "willEnterForeground", "sceneWillEnterForeground a background",
                "sceneWillEnterForeground b background",
            ])
        try stage.activate()
        #expect(try stage.told() == ["didBecomeActive", "sceneDidBecomeActive a foreground-active"])
        // The focus moves from one of its windows to another.
        try stage.player.ask("window 0 visible")
        try stage.player.ask("window 1 active")
        #expect(
            try stage.told() == [
                "sceneWillResignActive a foreground-active", "sceneDidBecomeActive b foreground-active",
            ])
        // One is minimized.
        try stage.player.ask("window 0 hidden")
        #expect(
            try stage.told() == [
                "sceneDidEnterBackground a background", "sceneDoneInBackground a background",
            ])
        // The daemon reports before the toolkit.
        try stage.deactivate()
        try stage.enterBackground(5)
        #expect(
            try stage.told() == [
                "sceneWillResignActive b foreground-active", "willResignActive",
                "sceneDidEnterBackground b background", "sceneDoneInBackground b background",
                "didEnterBackground", "doneInBackground",
            ])
        #expect(try stage.scenes().map { $0.split(separator: ":")[1] } == ["background", "background"])
        try stage.enterForeground()
        try stage.activate()
        #expect(
            try stage.told() == [
                "willEnterForeground", "sceneWillEnterForeground b background", "didBecomeActive",
                "sceneDidBecomeActive b foreground-active",
            ])
        try stage.player.ask("close 1")
        #expect(
            try stage.told() == [
                "sceneWillResignActive b foreground-active", "sceneDidEnterBackground b background",
                "sceneDoneInBackground b background", "sceneDidDisconnect b unattached",
            ])
        #expect(try stage.scenes().count == 1)
    }

    /// What an application saves with three scenes, one of which was closed before.
    private func saved() throws -> (bytes: [UInt8], ids: [String]) {
        let stage = try Stage()
        for _ in 0..<3 { try stage.player.ask("scene") }
        try stage.player.ask("close 1")
        for (number, text) in ["milk", "bread", "butter"].enumerated() {
            try stage.player.ask("write \(number) \(text)")
        }
        try stage.player.ask("note 2 last")
        try stage.player.ask("text own")
        try stage.enterForeground()
        try stage.enterBackground(1)
        return (try #require(stage.daemon.saved), try (0..<3).map(stage.id))
    }

    @Test("the scenes come back in order, each with its state, beside the application's own")
    func restored() throws {
        let (bytes, ids) = try saved()
        let stage = try Stage(stored: bytes)
        #expect(
            try stage.scenes() == [
                "\(ids[0]):background:milk", "\(ids[1]):background:bread", "\(ids[2]):background:butter",
            ])
        #expect(stage.player.story.contains { $0 == "didDecode not-running own 7:-1,-1:3 0" })
        #expect(stage.player.story.contains { $0.hasPrefix("sceneWillConnect") && $0.hasSuffix(" - last") })
        // They are saved again as they are.
        try stage.enterForeground()
        try stage.enterBackground(2)
        #expect(stage.daemon.saved == bytes)
    }

    @Test("launched into the background, the scenes wait until somebody wants to see the application")
    func waiting() throws {
        let (bytes, ids) = try saved()
        var stage = try Stage([("launch-mode", .string("background"))], stored: bytes)
        #expect(try stage.scenes() == [])
        try stage.daemon.tell(.didEnterBackground, serial: 3)
        try stage.daemon.wait("the acknowledgement") { stage.daemon.acknowledged == [3] }
        #expect(stage.daemon.saved == bytes)
        // One of them is asked for, then the application.
        try stage.daemon.tell(.reopen) { try $0.appendDictionary([("scene", .string(ids[1]))]) }
        try stage.settle()
        #expect(try stage.scenes() == ["\(ids[1]):background:bread"])
        try stage.daemon.tell(.reopen) { try $0.appendDictionary([]) }
        _ = try stage.told()
        #expect(
            try stage.scenes().map { $0.prefix { $0 != ":" } } == [ids[1], ids[0], ids[2]].map { $0[...] })
        // Now it has scenes, so its delegate decides.
        try stage.daemon.tell(.reopen) { try $0.appendDictionary([]) }
        #expect(try stage.told() == ["reopen"])
    }

    @Test("a request goes to the scene that it names, to a new one, or to the application")
    func requests() throws {
        var stage = try Stage()
        let id = try stage.id(0)
        _ = try stage.told()
        for scene in [id, "new", "none"] {
            let token = ("activation-token", Variant.string("token"))
            try stage.daemon.tell(.reopen) { try $0.appendDictionary([("scene", .string(scene)), token]) }
            try stage.daemon.tell(.openURLs) { message in
                try message.append(strings: ["note:\(scene == id ? "own" : scene)"])
                try message.appendDictionary([("scene", .string(scene))])
            }
        }
        #expect(
            try stage.told() == [
                "sceneReopen a background token", "sceneOpen a background note:own",
                "sceneWillConnect b unattached - -", "sceneWillConnect c unattached note:new -", "reopen",
                "open",
            ])
        try stage.player.ask("front 1")
        #expect(try stage.told() == ["sceneReopen b background -"])
    }

    @Test(
        "without appstated a scene is as its window; the scenes of an earlier run join when appstated comes")
    func late() throws {
        let (bytes, ids) = try saved()
        let daemon = try StandIn()
        daemon.refusals["Register"] = [MethodError(ErrorName.accessDenied.rawValue, "not now")]
        daemon.stored = bytes
        let player = try Player(bus: daemon.bus, ["--scenes"])
        try daemon.wait("the refusal") { daemon.order == ["Register"] }
        try player.wait(for: "sceneWillConnect")
        try player.ask("write 0 tea")
        try player.ask("window 0 active")
        try player.wait(for: "sceneDidBecomeActive")
        daemon.state = "active"
        try daemon.launch([("restorable", .bool(true))])
        try daemon.wait("the restored scenes") { player.names.count { $0 == "sceneRestore" } == 3 }
        let scenes = try player.ask("scenes").split(separator: " ").map(String.init)
        #expect(scenes.first?.hasSuffix(":foreground-active:tea") == true)
        #expect(scenes.dropFirst().map { $0.prefix { $0 != ":" } } == ids.map { $0[...] })
    }

    @Test(
        "the saved state of an application without scenes is its state alone, and scenes that it had are dropped"
    )
    func without() throws {
        let (bytes, _) = try saved()
        let daemon = try StandIn()
        daemon.stored = bytes
        let player = try Player(bus: daemon.bus)
        try daemon.launch([("restorable", .bool(true))])
        #expect(player.story.contains { $0 == "didDecode not-running own 7:-1,-1:3 0" })
        #expect(try player.ask("scenes") == "")
        try daemon.sendToBackground(1)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [1] }
        let saved = String(decoding: try #require(daemon.saved), as: UTF8.self)
        #expect(!saved.contains("milk"))

        let never = try StandIn()
        let plain = try Player(bus: never.bus)
        try never.launch()
        try plain.ask("text own")
        try never.sendToBackground(1)
        try never.wait("the acknowledgement") { never.acknowledged == [1] }
        #expect(try !#require(never.saved).isEmpty)
        #expect(!String(decoding: try #require(never.saved), as: UTF8.self).contains("scenes"))
    }
}

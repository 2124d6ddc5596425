import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The real polkitd, with the project's actions and with rules.
@Suite("polkit", .enabled(if: PolkitDaemon.isAvailable, PolkitDaemon.whatItNeeds))
struct PolkitTests {
    private static let games: UInt32 = getpwnam("games")?.pointee.pw_uid ?? 5

    /// A daemon with an application of root, and polkit.
    private final class Scene {
        let daemon: TestDaemon
        let client: Client
        let polkit: PolkitDaemon
        let process: Child
        let path: String

        init(rules: String = "") throws {
            daemon = try TestDaemon(policy: PolkitDaemon.policy)
            client = try daemon.subscriber()
            polkit = try PolkitDaemon(daemon, client, rules: rules)
            process = try Child("sleep", ["1000"])
            path = try client.register("org.example.Roots", process.pid)
        }

        func call(_ app: App, _ words: String, isInteractive: Bool = false) throws -> String {
            let call = try app.begin(words, isInteractive: isInteractive)
            return try app.process.waitForLine(containing: "answer \(call) ")
                .split(separator: " ").dropFirst(2).joined(separator: " ")
        }
    }

    /// A rule that answers `result` where the condition, in JavaScript, holds.
    private static func rule(_ condition: String, _ result: String = "YES") -> String {
        """
        polkit.addRule(function(action, subject) {
            if (\(condition)) return polkit.Result.\(result);
        });

        """
    }

    @Test("without a rule no user sees another's applications, and managing needs an administrator")
    func defaults() throws {
        let scene = try Scene()
        let app = try App(scene.daemon.bus, uid: App.nobody)
        #expect(try scene.call(app, Words.list, isInteractive: true) == "ok")
        let suspend = Words.application(scene.path, "Suspend")
        #expect(try scene.call(app, suspend, isInteractive: true) == Words.error(.noSuchApplication))
        // There is no authentication agent on this bus.
        let register = Words.manager("Register s:org.example.Other u:\(scene.process.pid) {}")
        for isInteractive in [false, true] {
            let said = try scene.call(app, register, isInteractive: isInteractive)
            #expect(said == Words.error(.interactiveAuthorizationRequired))
        }
        #expect(try scene.client.state(scene.path) == "background")
    }

    @Test("a rule lets one user see other users' applications, and does not let another")
    func observe() throws {
        let scene = try Scene(
            rules: Self.rule("action.id == \"org.appstate1.observe\" && subject.user == \"games\""))
        let games = try App(scene.daemon.bus, uid: Self.games)
        #expect(try scene.call(games, Words.list) == "ok \(scene.path)")
        let suspend = try scene.call(games, Words.application(scene.path, "Suspend"))
        #expect(suspend == Words.error(.interactiveAuthorizationRequired))
        let nobody = try App(scene.daemon.bus, uid: App.nobody)
        #expect(try scene.call(nobody, Words.list) == "ok")
    }

    @Test("a user who may manage may also see")
    func manage() throws {
        let scene = try Scene(
            rules: Self.rule("action.id == \"org.appstate1.manage\" && subject.user == \"games\""))
        let games = try App(scene.daemon.bus, uid: Self.games)
        #expect(try scene.call(games, Words.application(scene.path, "Suspend")) == "ok")
        #expect(try scene.client.holds(scene.path) == ["request uid:\(Self.games)"])
        #expect(try scene.call(games, Words.list) == "ok \(scene.path)")
    }

    @Test("a rule can check the method, the application and its user")
    func details() throws {
        let scene = try Scene(
            rules: Self.rule("action.id == \"org.appstate1.observe\"")
                + Self.rule(
                    "action.id == \"org.appstate1.manage\" && action.lookup(\"method\") == \"Suspend\""
                        + " && action.lookup(\"application\") == \"org.example.Roots\""
                        + " && action.lookup(\"user\") == \"0\"")
                + Self.rule("action.id == \"org.appstate1.manage\"", "NO"))
        let games = try App(scene.daemon.bus, uid: Self.games)
        let suspend = Words.application(scene.path, "Suspend")
        // An application that the caller does not see yet is not revealed.
        #expect(try scene.call(games, suspend) == Words.error(.noSuchApplication))
        #expect(try scene.call(games, Words.list) == "ok \(scene.path)")
        #expect(try scene.call(games, suspend) == "ok")
        let terminate = try scene.call(games, Words.application(scene.path, "Terminate b:true"))
        #expect(terminate == Words.error(.accessDenied))
    }

    @Test("the rule in the documentation does what it says")
    func documented() throws {
        let text = try String(contentsOfFile: Programs.root + "/docs/configuration.md", encoding: .utf8)
        let parts = text.components(separatedBy: "```js\n")
        try #require(parts.count == 2)
        let rule = parts[1].components(separatedBy: "```")[0]
        let scene = try Scene(
            rules: rule.replacingOccurrences(of: "\"support\"", with: "\"games\"")
                .replacingOccurrences(of: "AUTH_SELF_KEEP", with: "YES"))
        let games = try App(scene.daemon.bus, uid: Self.games)
        #expect(try scene.call(games, Words.list) == "ok \(scene.path)")
        #expect(try scene.call(games, Words.application(scene.path, "Suspend")) == "ok")
        for words in [
            Words.application(scene.path, "Terminate b:true"), Words.manager("ReloadConfig"),
        ] {
            #expect(try scene.call(games, words) == Words.error(.interactiveAuthorizationRequired))
        }
        let nobody = try App(scene.daemon.bus, uid: App.nobody)
        #expect(try scene.call(nobody, Words.list) == "ok")
    }

    @Test("changed rules take effect at once, for a subscriber too")
    func changes() throws {
        let scene = try Scene(rules: Self.rule("subject.user == \"games\""))
        let games = try App(scene.daemon.bus, uid: Self.games)
        #expect(try scene.call(games, Words.manager("Subscribe")) == "ok")
        try scene.client.application(scene.path, "Suspend")
        try games.process.waitForLine(containing: "background suspended")
        try scene.polkit.replaceRules("")
        try games.process.waitForLine(containing: "\(BusNames.manager) Resync")
        #expect(try scene.call(games, Words.list) == "ok")
    }

    @Test("a polkit that was killed gives no consent")
    func killed() throws {
        let scene = try Scene(rules: Self.rule("subject.user == \"games\""))
        try scene.polkit.end()
        let games = try App(scene.daemon.bus, uid: Self.games)
        #expect(try scene.call(games, Words.list) == "ok")
        let suspend = try scene.call(games, Words.application(scene.path, "Suspend"))
        #expect(suspend == Words.error(.noSuchApplication))
    }
}

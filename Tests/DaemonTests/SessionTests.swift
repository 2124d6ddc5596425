import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Sessions of logind that are locked, switched and ended, and a logind that leaves, hangs or sends invalid data.
@Suite(
    "Sessions", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestDaemon.canHaveSessions, Comment(rawValue: TestDaemon.whatSessionsNeed)))
struct SessionTests {
    private static let locked = [
        "ProtectedDataWillBecomeUnavailable", "WillResignActive", "active→inactive", "inactive→background",
        "DidEnterBackground",
    ]
    private static let unlocked = [
        "ProtectedDataDidBecomeAvailable", "WillEnterForeground", "background→inactive", "inactive→active",
        "DidBecomeActive",
    ]
    private static let games: UInt32 = getpwnam("games")?.pointee.pw_uid ?? 5

    /// A daemon, a client that sees everything, and logind.
    private final class Scene {
        let daemon: TestDaemon
        let client: Client
        let logind: LoginStandIn
        private var applications: [App] = []

        init(grace: String = "10min") throws {
            daemon = try TestDaemon(
                // The memory of the machine that runs the tests must not affect them.
                configuration: "[LifeCycle]\nBackgroundGraceSec=\(grace)\n[Pressure]\nSource=/nonexistent\n",
                policy: LoginStandIn.policy, hasSessions: true)
            client = try daemon.subscriber()
            logind = try LoginStandIn(daemon, client)
        }

        /// An application that has the focus of the session that it is in, or of `session`.
        func application(uid: UInt32? = nil, speakingFor session: String? = nil) throws -> (App, String) {
            let app = try App(daemon.bus, uid: uid)
            applications.append(app)
            let path = try app.register()
            if let session { try app.reporter("SetSession s:\(session)") }
            try app.reporter("SetFocus u:\(app.pid)")
            try app.application(path, "FinishLaunching")
            try client.wait(for: path, toBe: "active")
            return (app, path)
        }

        func forget() throws { try client.catchUp() }

        /// An application in front in session c2, which is open and known to the daemon.
        func applicationInSession() throws -> (App, String) {
            try logind.open("c2", uid: getuid())
            let (app, path) = try application()
            try logind.waitUntilAsked(about: "c2")
            try forget()
            return (app, path)
        }
    }

    @Test("a lock removes protected data, then the foreground; the unlock returns both in that order")
    func locks() throws {
        let scene = try Scene()
        let (app, path) = try scene.applicationInSession()

        try scene.logind.lock("c2")
        try scene.client.wait(for: path, toSay: "DidEnterBackground")
        #expect(scene.client.story(of: path) == Self.locked)
        #expect(scene.client.reasons(of: path) == ["session", "session"])
        let serial = try app.last("ProtectedDataWillBecomeUnavailable", of: path)[0]
        #expect(serial != "0")
        try app.application(path, "Acknowledge t:\(serial)")
        #expect(try scene.client.explain(path)["away"] == .strings(["session c2 is locked"]))

        try scene.forget()
        try scene.logind.lock("c2", false)
        try scene.client.wait(for: path, toSay: "DidBecomeActive")
        #expect(scene.client.story(of: path) == Self.unlocked)
        try app.settle()
        #expect(app.story(of: path).suffix(10) == Self.locked + Self.unlocked)
        #expect(try scene.client.explain(path)["away"] == .strings([]))
    }

    @Test(
        "a reporter reports for sessions of its own user only, named or by its process",
        .enabled(if: App.canBeOthers, App.whatOthersNeed),
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func ownSession() throws {
        let scene = try Scene()
        // logind finds a process's session by its cgroup, below the root of all.
        let mine = "t" + UUID().uuidString.filter(\.isHexDigit)
        let theirs = "u" + UUID().uuidString.filter(\.isHexDigit)
        try scene.logind.open("c2", uid: App.nobody)
        try scene.logind.open(mine, uid: App.nobody, isDisplay: false)
        try scene.logind.open(theirs, uid: Self.games)
        let root = try #require(UnifiedHierarchy.find().flatMap { Cgroup(path: "/", in: $0) })
        let (ours, scopes) = (
            try TestCgroup("session-\(mine).scope", below: root),
            try TestCgroup("session-\(theirs).scope", below: root)
        )
        let (_, path) = try scene.application(uid: Self.games)

        let reporter = try App(scene.daemon.bus, uid: App.nobody)
        for (session, error) in [
            (theirs, ErrorName.accessDenied), ("c99", .invalidArgs), ("../users/1", .invalidArgs),
        ] {
            #expect(
                scene.client.error { try reporter.reporter("SetSession s:\(session)") } == error.rawValue)
        }
        // As after su(1), the process is in the session of another user.
        try scopes.take(reporter.pid)
        let own = try reporter.register()
        try reporter.application(own, "FinishLaunching")
        try reporter.reporter("SetFocus u:\(reporter.pid)")
        try scene.client.wait(for: own, toBe: "active")
        #expect(try scene.client.state(path) == "active", "the other user keeps the focus")
        try scene.logind.waitUntilAsked(about: "c2")
        try scene.forget()
        try scene.logind.lock(theirs)
        try scene.client.wait(for: path, toSay: "DidEnterBackground")
        #expect(scene.client.story(of: own) == [])
        try scene.logind.lock("c2")
        try scene.client.wait(for: own, toSay: "DidEnterBackground")

        let (next, home) = try { () throws -> (App, String) in
            let app = try App(scene.daemon.bus, uid: App.nobody)
            try ours.take(app.pid)
            let path = try app.register()
            try app.application(path, "FinishLaunching")
            try app.reporter("SetFocus u:\(app.pid)")
            return (app, path)
        }()
        try scene.client.wait(for: home, toBe: "active")
        try scene.logind.waitUntilAsked(about: mine)
        #expect(try scene.client.property(home, "Session") == .string(mine))
        try scene.logind.switchTo(mine, false)
        try scene.client.wait(for: home, toBe: "background")
        withExtendedLifetime(next) {}
    }

    @Test(
        "without logind every session is in front, and a logind that returns is asked again",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func restart() throws {
        let scene = try Scene()
        try scene.logind.open("c2", uid: App.nobody)
        try scene.logind.open("c3", uid: App.nobody, isDisplay: false)
        let (_, path) = try scene.application(uid: App.nobody)
        let (_, second) = try scene.application(uid: App.nobody, speakingFor: "c3")
        for id in ["c2", "c3"] { try scene.logind.waitUntilAsked(about: id) }
        try scene.logind.lock("c2")
        try scene.client.wait(for: path, toBe: "background")
        try scene.forget()
        let before = scene.logind.reads(of: "c2")
        // The daemon learns of both at once: a restart must take less than three seconds.
        scene.daemon.process.kill(SIGSTOP)
        scene.daemon.process.waitUntilStopped()
        try scene.logind.leave()
        try scene.logind.come()
        scene.daemon.process.kill(SIGCONT)
        try scene.logind.waitUntilAsked(about: "c2", after: before)
        try scene.client.settle()
        #expect(scene.client.story(of: path) == [], "a restart is no unlocking")

        try scene.logind.leave()
        try scene.client.wait(for: path, toSay: "DidBecomeActive")
        #expect(scene.client.story(of: path) == Self.unlocked)

        try scene.forget()
        try scene.logind.come()
        try scene.client.wait(for: path, toSay: "DidEnterBackground")
        #expect(scene.client.story(of: path) == Self.locked)
        #expect(scene.client.story(of: second) == [])
        // Its signals take effect as before.
        try scene.logind.lock("c2", false)
        try scene.client.wait(for: path, toSay: "DidBecomeActive")
    }

    @Test("signals from a client that is not logind are ignored")
    func stranger() throws {
        let scene = try Scene()
        let (_, path) = try scene.applicationInSession()
        let stranger = try scene.daemon.client()
        for destination in [BusNames.service, nil] {
            try scene.logind.change(
                "c2", [("LockedHint", .bool(true))], by: stranger.bus, to: destination)
        }
        try stranger.settle()
        try scene.client.settle()
        #expect(scene.client.story(of: path) == [])
    }
}

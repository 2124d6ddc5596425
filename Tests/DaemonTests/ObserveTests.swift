import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// polkit decides once for each connection whether it may see other users' applications. Only the caller waits for the
/// decision.
@Suite("Seeing with polkit's consent", .enabled(if: App.canBeOthers, App.whatOthersNeed))
struct ObserveTests {
    private static let observe = "org.appstate1.observe"

    @Test("polkit is not asked about a user's own applications, and only once about a subscriber")
    func own() throws {
        let daemon = try TestDaemon(policy: PolkitStandIn.policy)
        let client = try daemon.client()
        let polkit = try PolkitStandIn(daemon, client)
        polkit.rule = { _ in .no }
        let app = try App(daemon.bus, uid: App.nobody)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try app.reporter("SetFocus u:\(app.pid)")
        let person = try App(daemon.bus, uid: App.nobody)
        for words in ["Suspend", "Resume", "Explain", "CanSuspend"] { try person.application(path, words) }
        #expect(try app.manager("ListApplications") == path)
        #expect(throws: BusFailure.self) {
            try app.ask("call \(BusNames.applications)/99 \(BusNames.application) Explain")
        }
        try client.settle()
        #expect(polkit.questions.count == 0)

        for _ in 0..<2 {
            let call = try app.begin(Words.manager("Subscribe"))
            try client.wait("the answer") { app.answer(to: call) != nil }
            #expect(app.answer(to: call) == "ok")
        }
        #expect(polkit.questions.map(\.action) == [Self.observe])
        #expect(polkit.questions.map(\.isInteractive) == [false])
    }

    @Test("polkit is not asked about calls that concern the caller's own applications alone")
    func ownAlone() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let path = try app.register()
        #expect(try app.manager("GetApplicationByID s:org.example.Actor") == path)
        // Whatever the answers are, they come although polkit does not answer.
        for words in [
            "Launch s:org.example.Missing {}", "GetHistory s:org.example.Actor", "RegisterAgent s:none",
            "ForgetApplication s:org.example.Missing", "ToggleFocused {}",
        ] {
            try scene.call(app, Words.manager(words))
        }
        try scene.settle()
        #expect(scene.polkit.questions.count == 0)
    }

    @Test("polkit is not asked about root, whatever there is to see")
    func root() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let path = try app.register()
        try scene.client.application(path, "Suspend")
        #expect(try scene.client.list().count == 2)
        try scene.settle()
        #expect(scene.polkit.questions.count == 0)
    }

    @Test("until polkit answers, calls that depend on it wait in order, and all others are answered")
    func order() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let own = try app.register()
        let calls = try [
            Words.list, Words.manager("Subscribe"),
            Words.manager("GetApplicationByPID u:\(scene.process.pid)"),
            "\(scene.path) \(BusNames.properties) Get s:\(BusNames.application) s:State",
            Words.manager("Unsubscribe"),
        ].map { try app.begin($0) }
        try scene.question(1)

        // The daemon keeps serving other clients, and the caller's own application.
        #expect(try scene.client.state(scene.path) == "background")
        try app.application(own, "FinishLaunching")
        try app.reporter("SetFocus u:\(app.pid)")
        #expect(calls.allSatisfy { app.answer(to: $0) == nil })

        try scene.question(1).answer(.yes)
        #expect(try scene.answer(app, calls[4]) == "ok")
        let answers = app.lines.filter { $0.hasPrefix("answer ") }.map { $0.split(separator: " ")[1] }
        #expect(answers == calls.map { "\($0)" })
        #expect(app.answer(to: calls[0]) == "ok \(scene.path) \(own)")
        #expect(app.answer(to: calls[2]) == "ok \(scene.path)")
        #expect(app.answer(to: calls[3])?.contains("background") == true)

        // The decision is kept, so polkit is not asked again. Unsubscribe was the last call, so no signal arrives.
        #expect(try scene.call(app, Words.list) == "ok \(scene.path) \(own)")
        #expect(scene.polkit.questions.count == 1)
        let later = try Child("sleep", ["1000"])
        let added = try scene.client.register("org.example.Later", later.pid)
        try app.settle()
        #expect(!app.lines.contains { $0.hasPrefix("signal ") && $0.contains(added) })
    }

    @Test("if polkit says no, other users' applications do not exist for the caller")
    func refused() throws {
        let scene = try PolkitScene()
        scene.polkit.rule = { _ in .no }
        let app = try scene.app()
        #expect(try scene.call(app, Words.list) == "ok")
        let explain = try scene.call(app, Words.application(scene.path, "Explain"), isInteractive: true)
        #expect(explain == Words.error(.noSuchApplication))
        #expect(scene.polkit.questions.count == 1)
    }

    @Test("a user who could authenticate is prompted when a call allows interaction, and not before")
    func challenge() throws {
        let scene = try PolkitScene()
        scene.polkit.rule = { $0.isInteractive ? .yes : .challenge }
        let app = try scene.app()
        for _ in 0..<2 { #expect(try scene.call(app, Words.list) == "ok") }
        #expect(scene.polkit.questions.map(\.isInteractive) == [false])
        #expect(try scene.call(app, Words.list, isInteractive: true) == "ok \(scene.path)")
        #expect(try scene.call(app, Words.list) == "ok \(scene.path)")
        #expect(scene.polkit.questions.map(\.isInteractive) == [false, true])
    }

    @Test("an interactive call waits behind one that is not interactive, and its question is asked then")
    func challengeBehind() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let first = try app.begin(Words.list)
        let second = try app.begin(Words.list, isInteractive: true)
        let third = try app.begin(Words.manager("Unsubscribe"))
        try scene.question(1).answer(.challenge)
        let question = try scene.question(2)
        #expect(question.isInteractive)
        #expect(try scene.answer(app, first) == "ok")
        #expect(app.answer(to: second) == nil)
        #expect(app.answer(to: third) == nil)
        question.answer(.challenge)
        #expect(try scene.answer(app, second) == "ok")
        #expect(try scene.answer(app, third) == "ok")
        #expect(try scene.call(app, Words.list, isInteractive: true) == "ok")
        #expect(scene.polkit.questions.count == 2)
    }

    @Test("an authorized subscriber gets signals of others' applications until polkit revokes that")
    func revoked() throws {
        let scene = try PolkitScene()
        scene.polkit.rule = { _ in .yes }
        let app = try scene.app()
        #expect(try scene.call(app, Words.manager("Subscribe")) == "ok")
        try scene.client.application(scene.path, "Suspend")
        try app.settle()
        #expect(app.story(of: scene.path) == ["background→suspended"])

        // A signal that does not come from polkit is ignored.
        try PolkitStandIn.change(by: scene.client.bus, to: BusNames.service)
        try scene.settle()
        #expect(scene.polkit.questions.count == 1)

        scene.polkit.rule = { _ in .no }
        try scene.polkit.change()
        try scene.question(2)
        #expect(scene.polkit.questions[1].isInteractive == false)
        try app.process.waitForLine(containing: "\(BusNames.manager) Resync")
        try scene.client.application(scene.path, "Resume")
        try app.settle()
        #expect(app.story(of: scene.path) == ["background→suspended"])
        #expect(try scene.call(app, Words.list) == "ok")
        #expect(scene.polkit.questions.count == 2)
    }

    @Test("a client that has read everything about an object is told that it may see others again, or not")
    func revokedFromReaders() throws {
        let scene = try PolkitScene()
        scene.polkit.rule = { _ in .yes }
        let app = try scene.app()
        let all = "\(scene.path) \(BusNames.properties) GetAll s:"
        #expect(try scene.call(app, all).hasPrefix("ok"))
        scene.polkit.rule = { _ in .no }
        try scene.polkit.change()
        try scene.question(2)
        try app.process.waitForLine(containing: "\(BusNames.manager) Resync")
        scene.polkit.rule = { _ in .yes }
        try scene.polkit.change()
        try scene.question(3)
    }

    @Test("after a change in polkit, a client without a subscription is checked again at its next call")
    func changed() throws {
        let scene = try PolkitScene()
        scene.polkit.rule = { _ in .no }
        let app = try scene.app()
        #expect(try scene.call(app, Words.list) == "ok")
        scene.polkit.rule = { _ in .yes }
        try scene.polkit.change()
        try scene.settle()
        #expect(scene.polkit.questions.count == 1)
        #expect(try scene.call(app, Words.list) == "ok \(scene.path)")
    }

    @Test("four questions of one user are pending at polkit, and the fifth waits behind them")
    func linesUp() throws {
        let scene = try PolkitScene()
        let apps = try (0..<5).map { _ in try scene.app() }
        var calls: [Int] = []
        for (index, app) in apps.enumerated() {
            calls.append(try app.begin(Words.list))
            if index < 4 { try scene.question(index + 1) }
        }
        try scene.settle()
        #expect(scene.polkit.questions.count == 4)
        scene.polkit.questions[0].answer(.yes)
        try scene.question(5)
        for question in scene.polkit.questions.dropFirst() { question.answer(.yes) }
        for (app, call) in zip(apps, calls) { #expect(try scene.answer(app, call) == "ok \(scene.path)") }
    }

    @Test("at most 64 calls of a user wait for polkit")
    func held() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        // A question that is not interactive is withdrawn after 10 s.
        let calls = try (0..<65).map { _ in try app.begin(Words.list, isInteractive: true) }
        #expect(try scene.answer(app, calls[64]) == Words.error(.limitsExceeded))
        try scene.question(1).answer(.yes)
        for call in calls.dropLast() { #expect(try scene.answer(app, call) == "ok \(scene.path)") }
    }

    @Test("without polkit only the same user and root have access; polkit is asked once it appears")
    func absent() throws {
        let scene = try PolkitScene()
        try scene.polkit.leave()
        let app = try scene.app()
        for _ in 0..<2 { #expect(try scene.call(app, Words.list) == "ok") }
        let suspend = Words.application(scene.path, "Suspend")
        #expect(try scene.call(app, suspend, isInteractive: true) == Words.error(.noSuchApplication))
        #expect(scene.polkit.questions.count == 0)

        scene.polkit.rule = { _ in .yes }
        try scene.polkit.come()
        try scene.settle()
        #expect(try scene.call(app, Words.list) == "ok \(scene.path)")
    }

    @Test("10 s without an answer from polkit count as no, and polkit is not awaited again")
    func silent() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        #expect(try scene.call(app, Words.list) == "ok")
        let question = try scene.question(1)
        try scene.client.wait("the cancellation") { question.isCancelled }
        #expect(try scene.call(app, Words.list) == "ok")
        #expect(scene.polkit.questions.count == 1)
    }

    @Test("a polkit that cannot be started is not tried again until the configuration is reloaded")
    func broken() throws {
        let log = NSTemporaryDirectory() + "starts.\(getpid()).\(UInt32.random(in: 0...UInt32.max))"
        defer { unlink(log) }
        let daemon = try TestDaemon(
            policy: PolkitStandIn.policy,
            services: [PolkitStandIn.name: "/bin/sh -c \"echo x >>\(log); exit 1\""]
        )
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Roots", process.pid)
        func starts() -> Int { (try? String(contentsOfFile: log, encoding: .utf8).count / 2) ?? 0 }
        for _ in 0..<3 {
            let app = try App(daemon.bus, uid: App.nobody)
            #expect(try app.manager("ListApplications") == "")
            #expect(throws: BusFailure.self) { try app.application(path, "Suspend") }
        }
        #expect(starts() == 1)
        try daemon.reload()
        #expect(try App(daemon.bus, uid: App.nobody).manager("ListApplications") == "")
        #expect(starts() == 2)
    }

    @Test("when a caller leaves the bus, its unanswered question is cancelled")
    func leaving() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        _ = try app.begin(Words.list)
        let question = try scene.question(1)
        app.process.kill(SIGKILL)
        try scene.client.wait("the cancellation of the question") { question.isCancelled }
    }
}

import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// polkit decides for each call whether the caller may manage other users' applications.
@Suite("Managing with polkit's consent", .enabled(if: App.canBeOthers, App.whatOthersNeed))
struct ManageTests {
    private static let manage = "org.appstate1.manage"
    /// Users that every system has; each must have a passwd entry.
    private static let users: [UInt32] = [1, 2, 3, 4, 5, 6, 7, 8, 9].filter { getpwuid($0) != nil }

    @Test("polkit's consent to one call does not cover the next call")
    func granted() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let suspend = try app.begin(Words.application(scene.path, "Suspend"), isInteractive: true)
        let question = try scene.question(1)
        #expect(question.action == Self.manage)
        #expect(try question.subject == app.ask("name"))
        #expect(question.isInteractive)
        // Meanwhile another client can read a property, and the call has had no effect yet.
        #expect(try scene.client.state(scene.path) == "background")
        question.answer(.yes)
        #expect(try scene.answer(app, suspend) == "ok")
        try scene.client.wait("the stop") { try scene.client.state(scene.path) == "suspended" }
        #expect(try scene.client.holds(scene.path) == ["request uid:\(App.nobody)"])

        let resume = try app.begin(Words.application(scene.path, "Resume"))
        try scene.question(2).answer(.no)
        #expect(try scene.answer(app, resume) == Words.error(.noSuchApplication))
        #expect(try scene.client.state(scene.path) == "suspended")
    }

    @Test("every managing method asks polkit, and neither question nor answer reveals a hidden application")
    func unseen() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let missing = "\(BusNames.applications)/99"
        for words in [
            "Configure {}", "Suspend", "Resume", "Toggle {}", "CanSuspend", "Terminate b:true", "Unregister",
        ] {
            for word in [PolkitStandIn.Word.no, .challenge] {
                for path in [scene.path, missing] {
                    scene.polkit.forget()
                    scene.polkit.rule = { _ in word }
                    let said = try scene.call(app, Words.application(path, words), isInteractive: true)
                    #expect(said == Words.error(.noSuchApplication), "\(words)")
                    #expect(scene.polkit.questions.map(\.action) == [Self.manage], "\(words)")
                    let method = words.split(separator: " ")[0]
                    #expect(
                        scene.polkit.questions.first?.details
                            == ["method": "\(method)", "object": path, "target": path])
                }
            }
        }
        scene.polkit.rule = { _ in .yes }
        let said = try scene.call(app, Words.application(missing, "Suspend"))
        #expect(said == Words.error(.noSuchApplication))
        #expect(try scene.client.state(scene.path) == "background")
    }

    @Test("a caller that sees the application gets AccessDenied, and polkit gets the details")
    func seen() throws {
        let scene = try PolkitScene()
        var word = PolkitStandIn.Word.no
        scene.polkit.rule = { $0.action == Self.manage ? word : .yes }
        let app = try scene.app()
        #expect(try scene.call(app, Words.list) == "ok \(scene.path)")
        let terminate = Words.application(scene.path, "Terminate b:true")
        #expect(try scene.call(app, terminate) == Words.error(.accessDenied))
        word = .challenge
        #expect(try scene.call(app, terminate) == Words.error(.interactiveAuthorizationRequired))
        #expect(
            scene.polkit.questions.last?.details == [
                "method": "Terminate", "object": scene.path, "application": "org.example.Roots", "user": "0",
                "target": "org.example.Roots of user 0",
            ])
        // Explain needs only the permission to see. The delegate's methods are for the application's own processes.
        word = .yes
        let finish = try scene.call(app, Words.application(scene.path, "FinishLaunching"))
        #expect(finish == Words.error(.notDelegate))
        #expect(try scene.call(app, Words.application(scene.path, "Explain")) == "ok")
        #expect(try scene.call(app, terminate) == "ok")
        #expect(try scene.client.waitForRemoval(of: scene.path) == "force-quit")
    }

    @Test("with polkit's consent another user's process can be registered, by PID and by pidfd")
    func register() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let other = try scene.app(uid: Self.users[0])
        let byNumber = Words.manager("Register s:org.example.Other u:\(other.pid) {}")
        scene.polkit.rule = { _ in .no }
        #expect(try scene.call(app, byNumber) == Words.error(.accessDenied))
        scene.polkit.rule = { _ in .challenge }
        #expect(try scene.call(app, byNumber) == Words.error(.interactiveAuthorizationRequired))
        #expect(
            scene.polkit.questions.last?.details == [
                "method": "Register", "application": "org.example.Other", "user": "\(Self.users[0])",
                "pid": "\(other.pid)", "target": "process \(other.pid) of user \(Self.users[0])",
            ])
        scene.polkit.rule = { _ in .yes }
        let delegate = Words.manager("Register s:org.example.Other u:\(other.pid) {delegate=b:true}")
        #expect(try scene.call(app, delegate) == Words.error(.accessDenied))
        #expect(try scene.call(app, byNumber).hasPrefix("ok \(BusNames.applications)/"))
        #expect(try scene.call(app, byNumber) == Words.error(.alreadyRegistered))

        let another = try scene.app(uid: Self.users[1])
        let byDescriptor = Words.manager("RegisterProcess s:org.example.Other h:\(another.pid) {}")
        let answer = try scene.call(app, byDescriptor)
        #expect(answer.hasPrefix("ok \(BusNames.applications)/"), "\(answer)")
        let uids = try scene.client.list().map { $0.split(separator: " ")[3] }
        #expect(uids == ["0", "\(Self.users[0])", "\(Self.users[1])"])
    }

    @Test("a caller that polkit authorizes can reload the configuration")
    func reload() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let reload = Words.manager("ReloadConfig")
        for (word, answer) in [
            (PolkitStandIn.Word.no, Words.error(.accessDenied)),
            (.challenge, Words.error(.interactiveAuthorizationRequired)), (.yes, "ok"),
        ] {
            scene.polkit.rule = { _ in word }
            #expect(try scene.call(app, reload) == answer)
        }
        #expect(scene.polkit.questions.allSatisfy { $0.action == Self.manage })
    }

    @Test("when a caller leaves the bus its question to polkit is cancelled, and nothing is done")
    func leaving() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        _ = try app.begin(Words.application(scene.path, "Suspend"), isInteractive: true)
        let question = try scene.question(1)
        let name = try app.ask("name")
        try scene.client.waitForDeparture(of: name) { app.process.kill(SIGKILL) }
        try scene.client.wait("the cancellation of the question") { question.isCancelled }
        try scene.settle()
        #expect(try scene.client.state(scene.path) == "background")
        #expect(try scene.client.holds(scene.path) == [])
    }

    @Test("a call gets NoSuchApplication if the application ends before polkit answers")
    func ending() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let call = try app.begin(Words.application(scene.path, "Terminate b:false"))
        let question = try scene.question(1)
        scene.process.kill(SIGKILL)
        try scene.client.waitForRemoval(of: scene.path)
        question.answer(.yes)
        #expect(try scene.answer(app, call) == Words.error(.noSuchApplication))
    }

    @Test("polkit is not asked about a sandboxed caller, which sees and manages nothing")
    func sandboxed() throws {
        let scene = try PolkitScene()
        scene.polkit.rule = { _ in .yes }
        let app = try App(scene.daemon.bus, uid: App.nobody, isSandboxed: true)
        #expect(try scene.call(app, Words.list) == "ok")
        let none = Words.error(.noSuchApplication)
        for words in ["Suspend", "Explain", "Unregister"] {
            #expect(try scene.call(app, Words.application(scene.path, words), isInteractive: true) == none)
        }
        for words in [
            "Subscribe", "ReloadConfig", "Register s:org.example.Other u:\(scene.process.pid) {}",
        ] {
            let said = try scene.call(app, Words.manager(words), isInteractive: true)
            #expect(said == Words.error(.accessDenied), "\(words)")
        }
        #expect(scene.polkit.questions.count == 0)
    }

    @Test("a user's fifth pending question is refused with LimitsExceeded, another user's first is not")
    func limitOfUser() throws {
        let scene = try PolkitScene()
        let app = try scene.app()
        let suspend = Words.application(scene.path, "Suspend")
        let calls = try (0..<5).map { _ in try app.begin(suspend, isInteractive: true) }
        #expect(try scene.answer(app, calls[4]) == Words.error(.limitsExceeded))
        try scene.question(4)
        try scene.settle()
        #expect(scene.polkit.questions.count == 4)
        let other = try scene.app(uid: Self.users[0])
        _ = try other.begin(suspend)
        try scene.question(5)

        scene.polkit.questions[2].answer(.no)
        #expect(try scene.answer(app, calls[2]) == Words.error(.noSuchApplication))
        let next = try app.begin(suspend)
        try scene.question(6).answer(.yes)
        #expect(try scene.answer(app, next) == "ok")
        try scene.client.wait("its suspension") { try scene.client.state(scene.path) == "suspended" }
    }

    @Test(
        "at most 32 questions are pending in all, and the next call gets LimitsExceeded",
        .enabled(if: users.count == 9, "needs nine users")
    )
    func limitOfAll() throws {
        let scene = try PolkitScene()
        let apps = try Self.users.map { try scene.app(uid: $0) }
        let suspend = Words.application(scene.path, "Suspend")
        for (index, app) in apps.dropLast().enumerated() {
            for _ in 0..<4 { _ = try app.begin(suspend, isInteractive: true) }
            try scene.question(4 * (index + 1))
        }
        let last = try #require(apps.last)
        #expect(try scene.call(last, suspend) == Words.error(.limitsExceeded))
        #expect(scene.polkit.questions.count == 32)
        scene.polkit.questions[0].answer(.no)
        let call = try last.begin(suspend)
        try scene.question(33).answer(.no)
        #expect(try scene.answer(last, call) == Words.error(.noSuchApplication))
    }
}

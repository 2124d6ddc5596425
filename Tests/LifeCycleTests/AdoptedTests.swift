import AppStateContract
import Testing

@testable import LifeCycle

/// An application that another process adopted, and the registration by the application's own process (§ 2).
@Suite("Adopted")
struct AdoptedTests {
    private let own = ApplicationNumber(2)

    /// A stage with an adopted application, after `change`.
    private func adopted(
        _ settings: Settings = Settings(), _ change: (inout Stage) throws -> Void = { _ in }
    ) throws -> Stage {
        var stage = try Stage.launched(delegate: false, settings) { $0.adopted = true }
        try change(&stage)
        stage.forget()
        return stage
    }

    /// Registers the application's process by itself.
    private func register(
        _ stage: inout Stage, _ change: (inout Registration) -> Void = { _ in }
    ) throws {
        try stage.register(suspension: .automatic) {
            $0.byItself = true
            change(&$0)
        }
    }

    private func successor(_ stage: Stage) throws -> Application {
        try #require(stage.machine.applications[own])
    }

    @Test(
        "a process that registers itself replaces its adopted application and is active once launched"
    )
    func replaced() throws {
        var stage = try adopted { try $0.focus() }
        try register(&stage)
        #expect(stage.effects.prefix(2) == [.removed(stage.number, .unregistered), .added(own)])
        #expect(stage.effects.contains(.focusChanged(.user(Stage.user))))
        #expect(stage.machine.applications.keys.sorted() == [own])
        #expect(stage.machine.application(of: stage.process)?.number == own)
        #expect(stage.machine.focusedApplication(in: .user(Stage.user)) == own)
        #expect(stage.words(.all) == ["WillFinishLaunching", "DidFinishLaunching"])
        let application = try successor(stage)
        #expect(application.state == .notRunning && application.suspension == .automatic)
        #expect(!application.isAdopted)
        stage.forget()
        try stage.perform(.finishLaunching(own, by: Stage.delegate))
        #expect(
            stage.words(.delegate) == [
                "WillEnterForeground", "not-running→inactive", "inactive→active", "DidBecomeActive",
            ])
    }

    @Test(
        "no other application gets the windows during the replacement, and minimized windows stay minimized")
    func windows() throws {
        var stage = try Stage.launched(delegate: false)
        let child = ProcessID(pid: 101, startTime: 8)
        let reported = ReportedProcess(
            lineage: [child, stage.process], user: Stage.user, session: .user(Stage.user))
        func register(_ change: (inout Registration) -> Void) throws {
            let id = try #require(ApplicationID("org.example.Child"))
            var registration = Registration(
                id: id, process: child, user: Stage.user, session: .user(Stage.user))
            change(&registration)
            try stage.perform(.register(registration))
        }
        try register { $0.adopted = true }
        try stage.perform(.setFocus(reported, stage.reporter))
        try stage.perform(.setMinimized(reported, true, stage.reporter))
        #expect(stage.machine.applications[own]?.isMinimized == true)
        let before = stage.application
        stage.forget()
        try register {
            $0.byItself = true
            $0.adopted = true
        }
        let next = ApplicationNumber(3)
        #expect(stage.application == before)
        #expect(stage.machine.applications[next]?.isMinimized == true)
        #expect(stage.machine.applications[next]?.state == .background)

        try stage.perform(.setFocus(reported, stage.reporter))
        stage.forget()
        try register { $0.byItself = true }
        #expect(stage.application == before)
        #expect(stage.machine.applications[ApplicationNumber(4)]?.state == .active)
    }

    @Test(
        "the replacement lifts the daemon's holds, and the daemon's own stop does not count as a foreign stop"
    )
    func held() throws {
        for isSeen in [true, false] {
            var stage = try adopted {
                try $0.perform(.suspend($0.number, holder: "uid:1000"))
                if isSeen { $0.settle() }
            }
            try register(&stage) { $0.stopped = true }
            #expect(stage.effects.first == .resume(stage.number))
            let application = try successor(stage)
            #expect(!application.isStopped && application.allHolds.isEmpty)
            // A fact about the application that is gone.
            stage.forget()
            stage.handle(.continued(stage.number))
            #expect(stage.effects.isEmpty)
        }
    }

    @Test("a foreign stop and its sender survive the replacement")
    func stopped() throws {
        for isHeld in [true, false] {
            var stage = try adopted {
                $0.stopBySomebody()
                guard isHeld else { return }
                try $0.perform(.suspend($0.number, holder: "uid:1000"))
                $0.settle()
            }
            try register(&stage) {
                $0.stopped = true
                $0.delegate = nil
            }
            #expect(stage.effects.contains(.resume(stage.number)) == isHeld)
            let application = try successor(stage)
            #expect(application.state == .suspended)
            #expect(application.allHolds == [Application.Hold(reason: .signal, holder: "pid 7")])
            stage.handle(.continued(own))
            #expect(try successor(stage).state == .inactive)
        }
        // It is running now: the most recent look counts.
        var stage = try adopted { $0.stopBySomebody() }
        try register(&stage)
        #expect(try !successor(stage).isStopped)
    }

    @Test(
        "delegate, tasks and termination of an adopted application end with it; reported objections stay")
    func asked() throws {
        var stage = try adopted {
            try $0.perform(.becomeDelegate($0.number, Stage.delegate))
            try $0.perform(.beginBackgroundTask($0.number, name: "upload", by: ":1.6"))
            try $0.perform(.terminate($0.number, force: false))
            let report = ObjectionReport(process: $0.reported, reason: "audio")
            try $0.perform(.replaceObjections([report], $0.reporter))
        }
        #expect(stage.application.isAdopted)
        try register(&stage) { $0.delegate = ":1.7" }
        let application = try successor(stage)
        #expect(application.delegate == ":1.7" && application.tasks.isEmpty && !application.isTerminating)
        #expect(application.reportedReasons == ["audio"])
        #expect(stage.machine.connections == [":1.7", stage.reporter.connection])
        stage.handle(.disconnected(Stage.delegate))
        #expect(try successor(stage).delegate == ":1.7")
    }

    @Test(
        "anybody's registration replaces an application that is only mirrored, but not one that a rule names")
    func mirrored() throws {
        var stage = try Stage.launched(delegate: false) {
            $0.adopted = true
            $0.suspension = .manual
        }
        let registration = Registration(
            id: stage.application.id, process: stage.process, user: 1000, session: .user(1000))
        try stage.perform(.configure(stage.number, Rule()))
        #expect(throws: Refusal.alreadyRegistered(stage.process, stage.number)) {
            try stage.perform(.register(registration))
        }
        try stage.perform(.configure(stage.number, nil))
        try stage.perform(.register(registration))
        #expect(stage.machine.applications[stage.number] == nil)
        #expect(stage.machine.application(of: stage.process)?.isAdopted == false)
    }

}

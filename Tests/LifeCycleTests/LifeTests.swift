import AppStateContract
import Testing

@testable import LifeCycle

/// Launch, the signals that a suspended application missed, and the end (§§ 2 and 3).
@Suite("Life")
struct LifeTests {
    private static let second: Microseconds = 1_000_000

    @Test("a launch sends both launch signals at once, and walks to its state only after FinishLaunching")
    func launch() throws {
        var stage = Stage()
        try stage.register { $0.launchMode = .foreground }
        #expect(stage.words(.all) == ["WillFinishLaunching", "DidFinishLaunching"])
        #expect(stage.state == .notRunning)
        try stage.focus()
        #expect(stage.state == .notRunning, "facts gather meanwhile")
        stage.forget()
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        #expect(
            stage.words(.delegate) == [
                "WillEnterForeground", "not-running→inactive", "inactive→active", "DidBecomeActive",
            ])
    }

    @Test("without FinishLaunching the launch ends at its timeout, which is paused while stopped")
    func launchTimeout() throws {
        var stage = Stage()
        try stage.register()
        stage.pass(10 * Self.second)
        stage.stopBySomebody()
        #expect(stage.state == .notRunning)
        stage.pass(100 * Self.second)
        stage.handle(.continued(stage.number))
        stage.pass(10 * Self.second - 1)
        #expect(stage.state == .notRunning)
        stage.pass(1)
        #expect(stage.state == .background)
    }

    @Test("who registers a process decides whether it is automatic and counts as visible")
    func defaults() throws {
        var desk = Desk()
        let (own, other) = (desk.process(), desk.process())
        let byItself = try desk.register(own) { $0.byItself = true }
        let byAnother = try desk.register(other)
        #expect(desk.machine.applications[byItself]?.suspension == .automatic)
        #expect(desk.machine.applications[byAnother]?.suspension == .manual)
        #expect(desk.states(byItself, byAnother) == [.inactive, .background])
    }

    @Test("a launched program that does not register itself has launched with its first window")
    func firstWindow() throws {
        var desk = Desk()
        let (shown, hidden) = (desk.process(), desk.process())
        let number = try desk.register(shown) {
            $0.launched = true
            $0.launchMode = .foreground
        }
        #expect(desk.state(number) == .notRunning)
        try desk.update(1, shown)
        #expect(desk.state(number) == .inactive)
        let other = try desk.register(hidden) {
            $0.launched = true
            $0.launchMode = .background
        }
        #expect(desk.state(other) == .background)
    }

    @Test("an application that ends during its launch walks no edge")
    func endInLaunch() throws {
        var stage = Stage()
        try stage.register()
        stage.forget()
        stage.handle(.exited(stage.process, .exited))
        #expect(stage.words(.all).isEmpty)
        #expect(stage.effects.contains(.removed(stage.number, .exited)))
    }

    @Test("an application registered while stopped, focused or minimized starts in that state")
    func startsThere() throws {
        var stopped = try Stage.launched(delegate: false) { $0.stopped = true }
        #expect(stopped.state == .suspended && stopped.holds == [.signal])
        stopped.handle(.continued(stopped.number))
        #expect(stopped.state == .background)

        var focused = Stage()
        try focused.perform(.setFocus(focused.reported, focused.reporter))
        try focused.register(delegate: false)
        #expect(focused.state == .active)

        var minimized = Stage()
        var report = WindowReport(number: 1, process: minimized.reported)
        report.minimized = true
        try minimized.perform(.updateWindow(report, minimized.reporter))
        try minimized.register(delegate: false) { $0.launchMode = .foreground }
        #expect(minimized.state == .background && minimized.application.isMinimized)
    }

    @Test("a stopped application receives nothing; once it runs it receives each missed signal once")
    func backlog() throws {
        var stage = try Stage.launched()
        try stage.focus()
        stage.forget()
        stage.stopBySomebody()
        #expect(stage.words(.delegate).isEmpty)
        #expect(
            stage.words(.subscribers) == [
                "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
                "background→suspended",
            ])
        stage.forget()
        stage.handle(.continued(stage.number))
        #expect(
            stage.words(.delegate) == [
                "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
                "WillEnterForeground", "background→inactive", "inactive→active", "DidBecomeActive",
            ])
        #expect(stage.heard(.delegate).contains(.didEnterBackground(serial: 0, deadline: .never)))
        #expect(
            stage.words(.subscribers) == [
                "suspended→background", "WillEnterForeground", "background→inactive", "inactive→active",
                "DidBecomeActive",
            ])
    }

    @Test("a DidEnterBackground that is sent late has nothing to acknowledge")
    func lateBackground() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        // The stop is under way when it enters the background.
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        try stage.minimize()
        stage.settle()
        stage.forget()
        try stage.perform(.resume(stage.number, holder: "uid:1000"))
        stage.settle()
        #expect(stage.state == .background)
        #expect(
            stage.heard(.delegate).filter { $0.signal == .didEnterBackground } == [
                .didEnterBackground(serial: 0, deadline: .never)
            ])
    }

    @Test("a delegate that joins late does not receive what was missed before")
    func lateDelegate() throws {
        var stage = try Stage.launched()
        try stage.focus()
        stage.stopBySomebody()
        stage.forget()
        try stage.perform(.becomeDelegate(stage.number, ":1.80"))
        stage.handle(.continued(stage.number))
        #expect(
            stage.words(.delegate) == [
                "WillEnterForeground", "background→inactive", "inactive→active", "DidBecomeActive",
            ])
    }

    // MARK: The end

    @Test("an orderly end sends WillTerminate, SIGTERM at half the deadline and SIGKILL at the deadline")
    func orderly() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        let deadline = stage.now + 5 * Self.second
        #expect(
            stage.heard(.delegate).last
                == .willTerminate(serial: stage.application.lastSerial, deadline: deadline))
        stage.pass(2_500_000 - 1)
        #expect(!stage.effects.contains(.requestExit(stage.number)))
        stage.pass(1)
        #expect(stage.effects.contains(.requestExit(stage.number)))
        #expect(!stage.effects.contains(.kill(stage.number)))
        stage.pass(2_500_000)
        #expect(stage.effects.contains(.kill(stage.number)))
        stage.handle(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .terminated)))
    }

    @Test("SIGTERM is sent at the acknowledgement, or at once if there is no delegate or it has left")
    func requestExit() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        try stage.perform(
            .acknowledge(stage.number, serial: stage.application.lastSerial, by: Stage.delegate))
        #expect(stage.effects.contains(.requestExit(stage.number)))

        var alone = try Stage.launched(delegate: false)
        try alone.perform(.terminate(alone.number, force: false))
        #expect(alone.effects.contains(.requestExit(alone.number)))

        var left = try Stage.launched()
        try left.perform(.terminate(left.number, force: false))
        left.handle(.disconnected(Stage.delegate))
        left.handle(.timePassed)
        #expect(left.effects.contains(.requestExit(left.number)))
    }

    @Test("what another process has stopped is killed at the deadline; a forced end kills at once")
    func killed() throws {
        var stage = try Stage.launched()
        stage.stopBySomebody()
        stage.forget()
        try stage.perform(.terminate(stage.number, force: false))
        #expect(!stage.effects.contains(.kill(stage.number)))
        stage.now += stage.machine.settings.terminateGrace ?? 0
        stage.handle(.timePassed)
        #expect(stage.effects.contains(.kill(stage.number)))
        stage.handle(.exited(stage.process, .killed))
        #expect(stage.effects.contains(.removed(stage.number, .terminated)))

        var forced = try Stage.launched()
        try forced.perform(.terminate(forced.number, force: false))
        forced.forget()
        try forced.perform(.terminate(forced.number, force: true))
        #expect(forced.words(.all).isEmpty && forced.effects.contains(.kill(forced.number)))
        forced.handle(.exited(forced.process, .killed))
        #expect(forced.effects.contains(.removed(forced.number, .forceQuit)))
    }

    @Test("an application that is being terminated cannot be suspended")
    func notSuspendable() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        #expect(throws: Refusal.self) { try stage.perform(.suspend(stage.number, holder: "uid:0")) }
        #expect(stage.holds.isEmpty)
    }

    @Test("a refused request leaves everything as it was")
    func refusals() throws {
        var settings = Settings()
        settings.limits.applicationsPerUser = 1
        var stage = try Stage.launched(settings)
        let before = stage.application
        let other = ApplicationNumber(9)
        #expect(throws: Refusal.alreadyRegistered(stage.process, stage.number)) { try stage.register() }
        #expect(throws: Refusal.self) {
            try stage.register { $0 = Self.another(than: $0) }
        }
        for request: Request in [
            .suspend(other, holder: ""), .resume(other, holder: ""), .terminate(other, force: true),
            .unregister(other), .finishLaunching(stage.number, by: ":1.99"),
        ] {
            #expect(throws: Refusal.self) { try stage.perform(request) }
        }
        #expect(stage.application == before && stage.effects.isEmpty)
    }

    private static func another(than registration: Registration) -> Registration {
        var other = Registration(
            id: registration.id, process: ProcessID(pid: 101, startTime: 8), user: registration.user,
            session: registration.session)
        other.delegate = registration.delegate
        return other
    }
}

import AppStateContract
import Testing

@testable import LifeCycle

/// Sessions that are locked, switched away and ended (§ 2, § 3).
@Suite("Sessions")
struct SessionTests {
    static let home = SessionKey.login("c2")
    static let away = Fact.session(home, inFront: false)
    static let locked = Fact.session(home, inFront: false, isLocked: true)
    static let unlocked = Fact.session(home, inFront: true)

    /// An application with a delegate that has the focus in a login session.
    private func focused(suspension: SuspensionPolicy = .automatic) throws -> Stage {
        var stage = try Stage.launched(suspension: suspension) { $0.session = Self.home }
        try stage.perform(
            .setFocus(
                stage.reported, ReporterIdentity(connection: ":1.9", user: Stage.user, session: Self.home)))
        #expect(stage.state == .active)
        stage.forget()
        return stage
    }

    @Test("protected data is withdrawn before the edges of the lock, and returns before the edges back")
    func order() throws {
        var stage = try focused()
        stage.handle(Self.locked)
        let down = [
            "ProtectedDataWillBecomeUnavailable", "WillResignActive", "active→inactive",
            "inactive→background", "DidEnterBackground",
        ]
        #expect(stage.words(.delegate) == down)
        #expect(stage.words(.subscribers) == down)
        stage.handle(Self.locked)
        #expect(stage.words(.delegate) == down, "said once")
        stage.forget()
        stage.handle(Self.unlocked)
        let up = [
            "ProtectedDataDidBecomeAvailable", "WillEnterForeground", "background→inactive",
            "inactive→active", "DidBecomeActive",
        ]
        #expect(stage.words(.delegate) == up)
        #expect(stage.words(.subscribers) == up)
    }

    @Test("a session that is only switched away keeps its protected data")
    func switchedAway() throws {
        var stage = try focused()
        stage.handle(Self.away)
        #expect(stage.state == .background)
        stage.handle(Self.locked)
        #expect(stage.words(.delegate).last == "ProtectedDataWillBecomeUnavailable")
        stage.forget()
        stage.handle(Self.away)
        #expect(stage.words(.delegate) == ["ProtectedDataDidBecomeAvailable"], "unlocked, and not in front")
        #expect(stage.state == .background)
    }

    @Test("policy waits for both acknowledgements, or for the deadline")
    func acknowledged() throws {
        var stage = try focused()
        stage.handle(Self.locked)
        let grace: Microseconds = 5_000_000
        guard
            let (lock, until) = stage.heard(.delegate).first?.until(.protectedDataWillBecomeUnavailable),
            let (background, deadline) = stage.heard(.delegate).last?.until(.didEnterBackground)
        else {
            Issue.record("\(stage.heard(.delegate))")
            return
        }
        #expect((until, deadline) == (stage.now + grace, stage.now + grace))
        var other = stage
        try stage.perform(.acknowledge(stage.number, serial: background, by: Stage.delegate))
        #expect(!stage.application.isPending)
        #expect(stage.machine.objections(to: stage.number) == ["protected data becomes unavailable"])
        #expect(stage.application.backgroundTimeRemaining(at: stage.now) == grace)
        try stage.perform(.acknowledge(stage.number, serial: lock, by: Stage.delegate))
        stage.settle()
        #expect(stage.state == .suspended)

        try other.perform(.acknowledge(other.number, serial: lock, by: Stage.delegate))
        #expect(!other.application.isPending)
        other.pass(grace)
        other.settle()
        #expect(other.state == .suspended, "its grace was over")
        #expect(other.machine.nextDeadline != other.now)
    }

    @Test("where policy would not suspend it, the deadline is 0, as in DidEnterBackground")
    func notSuspended() throws {
        var observing = Settings()
        observing.mode = .observe
        var endless = Settings()
        endless.backgroundTaskMax = nil
        for kind in 0..<5 {
            var stage = try Stage.launched(
                suspension: .automatic, kind == 0 ? observing : kind == 4 ? endless : Settings())
            try stage.focus()
            switch kind {
            case 1: stage.handle(.shutdownPrepared(true))
            case 2:
                var report = WindowReport(number: 1, process: stage.reported)
                report.focused = true
                try stage.perform(.updateWindow(report, stage.reporter))
                stage.handle(.disconnected(stage.reporter.connection))
            case 3:
                try stage.perform(
                    .replaceObjections(
                        [ObjectionReport(process: stage.reported, reason: "audio")], stage.reporter))
            case 4:
                try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
            default: break
            }
            stage.forget()
            stage.handle(.session(.user(Stage.user), inFront: false, isLocked: true))
            let lock = stage.heard(.delegate).compactMap { $0.until(.protectedDataWillBecomeUnavailable) }
            let background = stage.heard(.delegate).compactMap { $0.until(.didEnterBackground) }
            #expect(lock.map(\.deadline) == [.never] && background.map(\.deadline) == [.never], "\(kind)")
            #expect(lock.map(\.serial) != [0], "it can still be acknowledged")
            #expect(stage.machine.backgroundTimeRemaining(of: stage.application, at: stage.now) == .max)
            #expect(stage.machine.suspensionDeadline(of: stage.application) == nil)
        }
    }

    @Test("if the machine does not shut down after all, a new grace period begins")
    func shutdownCancelled() throws {
        var stage = try focused()
        stage.handle(.shutdownPrepared(true))
        stage.handle(Self.away)
        stage.pass(60_000_000)
        #expect(stage.state == .background)
        stage.handle(.shutdownPrepared(false))
        stage.pass(4_999_999)
        #expect(stage.holds.isEmpty)
        stage.pass(1)
        #expect(stage.holds == [.policy])
    }

    @Test("unlocking, a stop and the delegate's exit each end the wait")
    func waitEnds() throws {
        var stage = try focused()
        stage.handle(Self.locked)
        #expect(stage.application.protection != nil)
        for end in [Self.unlocked, .stopped(stage.number, holder: "pid 7"), .disconnected(Stage.delegate)] {
            var other = stage
            other.handle(end)
            #expect(other.application.protection == nil, "\(end)")
        }
    }

    @Test(
        "a suspended application learns of the unlocking when it runs again, before the edges of its return")
    func suspended() throws {
        var stage = try focused()
        stage.handle(Self.locked)
        stage.pass(5_000_000)
        stage.settle()
        #expect(stage.state == .suspended)
        stage.forget()
        stage.handle(Self.unlocked)
        #expect(stage.words(.delegate) == [], "it stands")
        #expect(stage.words(.subscribers) == ["ProtectedDataDidBecomeAvailable"])
        stage.settle()
        #expect(
            stage.words(.delegate) == [
                "ProtectedDataDidBecomeAvailable", "WillEnterForeground", "background→inactive",
                "inactive→active", "DidBecomeActive",
            ])
    }

    @Test(
        "an application registered in a locked session starts in the background and learns of the unlocking")
    func bornLocked() throws {
        var stage = Stage()
        stage.handle(Self.locked)
        try stage.register {
            $0.session = Self.home
            $0.launchMode = .foreground
        }
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        #expect(stage.state == .background)
        #expect(!stage.words(.delegate).contains("ProtectedDataWillBecomeUnavailable"))
        stage.forget()
        stage.handle(Self.unlocked)
        #expect(
            stage.words(.delegate) == [
                "ProtectedDataDidBecomeAvailable", "WillEnterForeground", "background→inactive",
            ])
    }

    @Test("one locked session is enough for an application with windows in two sessions")
    func twoSessions() throws {
        var desk = Desk()
        let second = SessionKey.login("c3")
        let process = desk.process(in: Self.home)
        let a = try desk.register(process)
        desk.handle(.session(Self.home, inFront: false, isLocked: true))
        desk.forget()
        try desk.update(1, process, by: Desk.reporter(in: second))
        #expect(
            desk.announced(to: a).first?.signal == .protectedDataDidBecomeAvailable, "its window is elsewhere"
        )
        try desk.update(2, process, minimized: true, by: Desk.reporter(":1.10", in: Self.home))
        #expect(desk.state(a) == .inactive)
        #expect(
            desk.announced(to: a).last == .protectedDataWillBecomeUnavailable(serial: 0, deadline: .never))
    }

    @Test("an ended session shows nothing, and is forgotten with its last application")
    func ended() throws {
        var desk = Desk()
        let process = desk.process(in: Self.home)
        let a = try desk.register(process) { $0.suspension = .automatic }
        try desk.update(1, process, focused: true, by: Desk.reporter(in: Self.home))
        desk.handle(.sessionEnded(Self.home))
        #expect(desk.state(a) == .background)
        desk.handle(.disconnected(Desk.reporter().connection))
        #expect(desk.machine.objections(to: a) == [], "nobody needs to tell what is visible in it")
        desk.pass(5 * Desk.second)
        desk.settle()
        #expect(desk.state(a) == .suspended)
        desk.handle(.exited(process.lineage[0], .exited))
        #expect(desk.machine.sessions.isEmpty)
        desk.handle(.sessionEnded(.login("c9")))
        #expect(desk.machine.sessions.isEmpty, "nothing was in it")
    }

    @Test("a restart of the daemon brings nothing to the front and repeats no signal")
    func restored() throws {
        var stage = try focused()
        stage.handle(Self.locked)
        guard let record = stage.machine.record(of: stage.number) else {
            Issue.record("no record")
            return
        }
        var next = Machine()
        #expect(try next.restore(record) == stage.number)
        #expect(next.record(of: stage.number) == record)
        stage.machine = next
        stage.forget()
        let effects = stage.machine.reassert(stage.number, at: stage.now)
        guard case .changed(stage.number, _)? = effects.first, effects.count == 1 else {
            Issue.record("\(effects)")
            return
        }
        stage.handle(Self.locked)
        #expect(stage.words(.subscribers) == [])
        #expect(stage.application.protection != nil)
        stage.handle(Self.unlocked)
        #expect(stage.words(.subscribers).first == "ProtectedDataDidBecomeAvailable")
        #expect(stage.state == .active)
    }
}

extension Desk {
    /// What was announced about an application, without state changes.
    fileprivate func announced(to number: ApplicationNumber) -> [Announcement] {
        effects.compactMap { effect in
            guard case .announce(number, let announcement, _) = effect, announcement.edge == nil,
                announcement.signal != .windowsChanged
            else { return nil }
            return announcement
        }
    }
}

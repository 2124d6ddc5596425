import AppStateContract
import Testing

@testable import LifeCycle

/// How the grace period, background tasks and the deadlines that the delegate receives interact (§ 4).
@Suite("Deadlines")
struct DeadlineTests {
    private static let second: Microseconds = 1_000_000

    private func deadline(_ stage: Stage) -> Microseconds? {
        stage.heard(.delegate).compactMap { $0.until(.didEnterBackground)?.deadline }.last
    }

    @Test("DidEnterBackground carries the later of the grace period's end and the tasks' limits")
    func withTask() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        stage.pass(10 * Self.second)
        try stage.minimize()
        #expect(deadline(stage) == stage.now + 30 * Self.second)
        #expect(stage.application.backgroundTimeRemaining(at: stage.now) == 30 * Self.second)
    }

    @Test("the limit of a task does not advance in the foreground, where no time is limited")
    func taskInForeground() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        stage.forget()
        try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        stage.pass(3_600 * Self.second)
        #expect(stage.application.tasks.map(\.deadline) == [.never])
        try stage.unfocus()
        #expect(stage.state == .inactive)
        stage.pass(3_600 * Self.second)
        #expect(stage.application.tasks.map(\.deadline) == [.never])
        #expect(!stage.words(.all).contains("BackgroundTaskWillExpire"))

        stage.forget()
        try stage.minimize()
        #expect(deadline(stage) == stage.now + 30 * Self.second)
        #expect(stage.application.tasks.map(\.deadline) == [stage.now + 30 * Self.second])
        let changed = stage.effects.contains { effect in
            if case .changed(_, let properties) = effect {
                properties.contains(.backgroundTasks)
            } else {
                false
            }
        }
        #expect(changed)

        stage.pass(10 * Self.second)
        try stage.focus()
        #expect(stage.application.tasks.map(\.deadline) == [.never])
        stage.pass(3_600 * Self.second)
        try stage.minimize()
        #expect(deadline(stage) == stage.now + 20 * Self.second)
        stage.pass(20 * Self.second)
        #expect(stage.application.tasks.isEmpty && stage.holds == [.policy])
    }

    @Test(
        "the limit of a task advances where policy suspends: behind a lock, and with a rule without the focus"
    )
    func taskWherePolicySuspends() throws {
        var locked = try Stage.launched(suspension: .automatic)
        try locked.focus()
        try locked.perform(.beginBackgroundTask(locked.number, name: "a", by: Stage.delegate))
        locked.handle(.session(.user(Stage.user), inFront: false, isLocked: true))
        #expect(locked.application.tasks.map(\.deadline) == [locked.now + 30 * Self.second])

        var ruled = try Stage.launched(suspension: .automatic)
        var rule = Rule()
        rule.suspendWhen = .inactive
        try ruled.perform(.configure(ruled.number, rule))
        try ruled.focus()
        try ruled.perform(.beginBackgroundTask(ruled.number, name: "a", by: Stage.delegate))
        #expect(ruled.application.tasks.map(\.deadline) == [.never])
        try ruled.unfocus()
        #expect(ruled.state == .inactive)
        #expect(ruled.application.tasks.map(\.deadline) == [ruled.now + 30 * Self.second])
    }

    @Test("a task whose deadline was put off is warned again, with the new one")
    func warnedAgain() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        stage.pass(25 * Self.second)
        try stage.focus()
        stage.pass(100 * Self.second)
        stage.forget()
        try stage.minimize()
        #expect(!stage.words(.delegate).contains("BackgroundTaskWillExpire"))
        stage.pass(0)
        let deadline = stage.now + 5 * Self.second
        #expect(stage.heard(.delegate).last == .backgroundTaskWillExpire(task: 1, deadline: deadline))
        stage.pass(5 * Self.second)
        #expect(stage.application.tasks.isEmpty)
    }

    @Test("a grace period of 0 suspends at once, and DidEnterBackground carries that deadline")
    func noGrace() throws {
        var settings = Settings()
        settings.backgroundGrace = 0
        var stage = try Stage.launched(suspension: .automatic, settings)
        try stage.focus()
        stage.settle()
        stage.forget()
        try stage.minimize()
        #expect(deadline(stage) == stage.now)
        stage.pass(0)
        #expect(stage.holds == [.policy])
    }

    @Test("a task that begins during or after policy's stop lifts the stop")
    func taskAgainstPolicy() throws {
        for isSeen in [false, true] {
            var stage = try Stage.launched(suspension: .automatic)
            stage.pass(5 * Self.second)
            if isSeen { stage.settle() }
            #expect(stage.holds == [.policy])
            try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
            stage.settle()
            #expect(stage.state == .background && stage.holds.isEmpty)
            try stage.perform(.endBackgroundTask(stage.number, task: 1))
            stage.pass(5 * Self.second)
            #expect(stage.holds == [.policy])
        }
    }

    @Test("changes of suspension, background modes and observe in the configuration take effect at once")
    func configuration() throws {
        for kind in 0..<4 {
            var settings = Settings()
            var stage = try Stage.launched(suspension: .automatic) { $0.backgroundModes = ["audio"] }
            stage.pass(5 * Self.second)
            stage.settle()
            #expect(stage.state == .suspended)
            settings.applications["org.example.Editor"] = Settings.Override()
            switch kind {
            case 0: settings.applications["org.example.Editor"]?.suspension = .manual
            case 1: settings.applications["org.example.Editor"]?.suspension = .never
            case 2: settings.applications["org.example.Editor"]?.backgroundModes = ["audio"]
            default: settings.mode = .observe
            }
            stage.handle(.configured(settings))
            stage.settle()
            #expect(stage.state == .background, "\(kind)")
            stage.pass(60 * Self.second)
            #expect(stage.state == .background, "\(kind)")
            stage.handle(.configured(Settings()))
            stage.pass(5 * Self.second)
            stage.settle()
            #expect(stage.state == .suspended, "\(kind)")
        }
    }

    private static let tasks = "background tasks and scheduled launches of user 1000"

    @Test("no task begins beyond the limit, whatever its name")
    func taskLimit() throws {
        var settings = Settings()
        settings.limits.backgroundTasksPerUser = 2
        var stage = try Stage.launched(settings)
        for _ in 0..<2 {
            try stage.perform(.beginBackgroundTask(stage.number, name: "", by: Stage.delegate))
        }
        let before = stage.machine
        #expect(throws: Refusal.limitExceeded(Self.tasks, limit: 2)) {
            try stage.perform(.beginBackgroundTask(stage.number, name: "b", by: Stage.delegate))
        }
        let isUnchanged = stage.machine == before
        #expect(isUnchanged)
        try stage.perform(.endBackgroundTask(stage.number, task: 1))
        let answer = try stage.perform(.beginBackgroundTask(stage.number, name: "b", by: Stage.delegate))
        #expect(answer == .task(3), "no number is used again")
    }
}

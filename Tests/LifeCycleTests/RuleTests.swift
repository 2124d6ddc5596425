import AppStateContract
import Testing

@testable import LifeCycle

/// The rules that a user sets for an application (`Configure`).
@Suite("Rules of the user")
struct RuleTests {
    private static let second: Microseconds = 1_000_000

    private func rule(_ change: (inout Rule) -> Void) -> Rule {
        var rule = Rule()
        rule.name = "edit*"
        change(&rule)
        return rule
    }

    @Test(
        "a rule overrides the application's own setting, and the administrator's overrides the rule"
    )
    func precedence() throws {
        var settings = Settings()
        var stage = try Stage.launched(suspension: .manual, settings)
        let rule = rule {
            $0.suspension = .automatic
            $0.reclaimable = false
        }
        try stage.perform(.configure(stage.number, rule))
        #expect(stage.application.suspension == .automatic && !stage.application.reclaimable)
        settings.applications["org.example.Editor"] = Settings.Override()
        settings.applications["org.example.Editor"]?.suspension = .never
        stage.handle(.configured(settings))
        #expect(stage.application.suspension == .never && !stage.application.reclaimable)
        stage.handle(.configured(Settings()))
        try stage.perform(.configure(stage.number, nil))
        #expect(stage.application.suspension == .manual && stage.application.reclaimable)
        #expect(throws: Refusal.self) { try stage.perform(.configure(ApplicationNumber(9), nil)) }
    }

    @Test("a rule and its removal take effect at once in the background")
    func atOnce() throws {
        var stage = try Stage.launched(suspension: .manual)
        try stage.minimize()
        stage.pass(60 * Self.second)
        #expect(stage.state == .background)
        let rule = rule {
            $0.suspension = .automatic
            $0.backgroundGrace = 2 * Self.second
        }
        try stage.perform(.configure(stage.number, rule))
        stage.pass(2 * Self.second - 1)
        #expect(stage.holds.isEmpty)
        stage.pass(1)
        stage.settle()
        #expect(stage.state == .suspended)
        try stage.perform(.configure(stage.number, nil))
        stage.settle()
        #expect(stage.state == .background)
    }

    @Test("a rule sets the grace period, also an endless one", arguments: [0, 3_000_000, Microseconds.max])
    func grace(_ span: Microseconds) throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.perform(.configure(stage.number, rule { $0.backgroundGrace = span }))
        try stage.minimize()
        let expected = span == .max ? nil : stage.now + span
        #expect(stage.application.graceDeadline == expected || span == 0 && stage.holds == [.policy])
    }

    @Test(
        "with KeepWhile= only the named objections count",
        arguments: [(nil, 2), (["audio"], 1), (["audio", "clipboard"], 2), ([], 0)] as [([String]?, Int)])
    func keepWhile(_ words: [String]?, _ count: Int) throws {
        var stage = try Stage.launched(suspension: .automatic)
        let told = ["audio", "clipboard"].map { ObjectionReport(process: stage.reported, reason: $0) }
        try stage.perform(.replaceObjections(told, stage.reporter))
        try stage.perform(.configure(stage.number, rule { $0.keepWhile = words }))
        #expect(stage.application.objections.count == count)
        try stage.minimize()
        stage.pass(5 * Self.second)
        stage.settle()
        #expect((stage.state == .suspended) == (count == 0))
        // This also takes effect at once.
        try stage.perform(.configure(stage.number, rule { $0.keepWhile = [] }))
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test(
        "a rule sets how often and how long a suspended application is drained, also never",
        arguments: [
            (nil, nil, 70, 1), (600, nil, 610, 1), (8, 2, 14, 2), (nil, 5, 70, 5), (60, 0, nil, 0),
            (.max, 5, nil, 0),
        ]
            as [(Microseconds?, Microseconds?, Microseconds?, Microseconds)])
    func drain(
        _ every: Microseconds?, _ span: Microseconds?, _ due: Microseconds?, _ length: Microseconds
    ) throws {
        var stage = try Stage.launched(suspension: .automatic) { $0.adopted = true }
        try stage.focus()
        let rule = rule {
            $0.drainEvery = every.map { $0 == .max ? .max : $0 * Self.second }
            $0.drainFor = span.map { $0 * Self.second }
        }
        try stage.perform(.configure(stage.number, rule))
        try stage.minimize()
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended)
        #expect(stage.application.stop.drainDeadline == due.map { $0 * Self.second })
        guard let due else { return }
        stage.pass(due * Self.second - stage.now)
        #expect(stage.application.stop.drainDeadline == stage.now + length * Self.second)
    }

    @Test(
        "SuspendWhen=inactive suspends a visible application without focus after a grace period"
    )
    func inSight() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.perform(.configure(stage.number, rule { $0.suspendWhen = .inactive }))
        stage.pass(60 * Self.second)
        #expect(stage.state == .active)
        try stage.bring(to: .inactive)
        #expect(stage.application.backgroundTimeRemaining(at: stage.now) == 5 * Self.second)
        stage.pass(5 * Self.second - 1)
        #expect(stage.holds.isEmpty)
        stage.pass(1)
        stage.settle()
        #expect(stage.state == .suspended && stage.holds == [.policy])
        // A visible application is not ended for its memory.
        #expect(stage.machine.reclaimRank(of: stage.number) == nil)
        try stage.focus()
        stage.settle()
        #expect(stage.state == .active)
        try stage.unfocus()
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended)
        // Without the rule it runs while visible.
        try stage.perform(.configure(stage.number, nil))
        stage.settle()
        #expect(stage.state == .inactive && stage.holds.isEmpty)
        stage.pass(60 * Self.second)
        #expect(stage.state == .inactive)
    }

    @Test("SuspendWhen=sleep suspends an application while the machine sleeps, and at no other time")
    func sleep() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.perform(.configure(stage.number, rule { $0.suspendWhen = .sleep }))
        try stage.minimize()
        stage.pass(600 * Self.second)
        stage.settle()
        #expect(stage.state == .background && stage.application.objections == ["SuspendWhen=sleep"])
        try stage.focus()
        stage.handle(.sleepBegins(stage.number))
        stage.settle()
        #expect(stage.state == .suspended && stage.holds == [.sleep])
        // A demand waits, and so does the focus.
        stage.handle(.needed(stage.number, "call of pid 7"))
        try stage.unfocus()
        try stage.focus()
        stage.settle()
        #expect(stage.state == .suspended)
        stage.handle(.sleepEnded)
        stage.settle()
        #expect(stage.state == .active && stage.holds.isEmpty)
        // A person's request stays, and a person may end this one.
        stage.handle(.sleepBegins(stage.number))
        stage.settle()
        try stage.perform(.resume(stage.number, holder: "uid:1"))
        stage.settle()
        #expect(stage.state == .active)
        try stage.perform(.suspend(stage.number, holder: "uid:1"))
        stage.handle(.sleepBegins(stage.number))
        stage.handle(.sleepEnded)
        stage.settle()
        #expect(stage.state == .suspended && stage.holds == [.request])
    }

    @Test("BackgroundCPUQuota= slows an application in the background instead of suspending it")
    func quota() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.perform(.configure(stage.number, rule { $0.backgroundCPUQuota = 20 }))
        #expect(stage.application.cpuQuota == nil)
        try stage.minimize()
        stage.pass(600 * Self.second)
        stage.settle()
        #expect(stage.state == .background && stage.application.cpuQuota == 20)
        #expect(stage.application.objections == ["BackgroundCPUQuota=20%"])
        try stage.perform(.configure(stage.number, nil))
        #expect(stage.application.cpuQuota == nil)
        stage.settle()
        stage.pass(5 * Self.second)
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test("the record keeps the rule")
    func record() throws {
        let rules = [
            rule { _ in }, rule { $0.keepWhile = [] }, rule { $0.drainFor = 3 },
            rule { $0.suspendWhen = .inactive }, rule { $0.backgroundCPUQuota = 20 },
            rule {
                $0.suspension = .never
                $0.reclaimable = true
                $0.backgroundGrace = .max
                $0.keepWhile = ["audio", "x"]
                $0.drainEvery = .max
                $0.drainFor = 0
            },
        ]
        for rule in rules {
            var stage = try Stage.launched()
            try stage.perform(.configure(stage.number, rule))
            let record = try #require(stage.machine.record(of: stage.number))
            #expect(try Application(record).rule == rule)
        }
    }
}

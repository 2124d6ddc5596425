import AppStateContract
import Testing

@testable import LifeCycle

/// Launches that applications schedule.
@Suite("Scheduled launches")
struct ScheduleTests {
    private static let user = Stage.user

    private func owner(_ user: UInt32 = user, _ name: String = "org.example.Editor") throws -> ScheduleOwner {
        ScheduleOwner(user: user, application: try #require(ApplicationID(name)))
    }

    private func launch(
        _ name: String, _ trigger: ScheduledLaunch.Trigger, of user: UInt32 = user
    ) throws -> ScheduledLaunch {
        ScheduledLaunch(owner: try owner(user), name: name, trigger: trigger)
    }

    private func launches(_ stage: Stage) -> [ScheduledLaunch] {
        stage.effects.compactMap { if case .launch(let launch) = $0 { launch } else { nil } }
    }

    @Test("a launch comes due by the clock, once, and is forgotten when it was carried out")
    func time() throws {
        var stage = Stage()
        let early = try launch("early", .time(100))
        let late = try launch("late", .time(200))
        for launch in [late, early] { try stage.perform(.scheduleLaunch(launch)) }
        #expect(stage.machine.nextScheduledTime == 100)
        // The core's own timer has nothing to do with it.
        #expect(stage.machine.nextDeadline == nil)
        stage.handle(.realTime(99))
        #expect(launches(stage).isEmpty)
        stage.handle(.realTime(150))
        stage.handle(.realTime(150))
        #expect(launches(stage) == [early])
        #expect(stage.machine.nextScheduledTime == 200)
        stage.forget()
        stage.handle(.launchSettled(early, isKept: false))
        #expect(stage.effects == [.scheduleChanged(early.owner)])
        #expect(stage.machine.scheduledLaunches(of: early.owner) == [late])
        // The clock was set back: what is due is computed from the new one.
        stage.handle(.realTime(10))
        stage.handle(.realTime(300))
        #expect(launches(stage) == [late])
    }

    @Test("a launch waits for its condition, which is not known once nothing waits for it")
    func condition() throws {
        var stage = Stage()
        try stage.perform(.scheduleLaunch(launch("a", .network)))
        #expect(stage.machine.awaits(.network) && !stage.machine.awaits(.power))
        for fact in [Fact.condition(.power, true), .condition(.network, false)] { stage.handle(fact) }
        #expect(launches(stage).isEmpty)
        stage.handle(.condition(.network, true))
        #expect(launches(stage).map(\.name) == ["a"])
        #expect(!stage.machine.awaits(.network))
        stage.forget()
        try stage.perform(.scheduleLaunch(launch("b", .network)))
        #expect(launches(stage).isEmpty)
        // One more, while it is known that the network is away.
        stage.handle(.condition(.network, false))
        try stage.perform(.scheduleLaunch(launch("c", .network)))
        stage.handle(.condition(.network, true))
        #expect(launches(stage).map(\.name) == ["b", "c"])
    }

    @Test("without an agent it waits for one of its user, and the next daemon waits as well")
    func agent() throws {
        var stage = Stage()
        let own = try launch("own", .time(1))
        try stage.perform(.scheduleLaunch(own))
        stage.handle(.realTime(1))
        stage.handle(.launchSettled(own, isKept: true))
        #expect(stage.machine.scheduledLaunches.map(\.isDue) == [true])
        stage.forget()
        stage.handle(.agentCame(user: 1001))
        #expect(launches(stage).isEmpty)
        for _ in 0..<2 { stage.handle(.agentCame(user: Self.user)) }
        #expect(launches(stage) == [own])

        var next = Stage()
        next.handle(.scheduled(stage.machine.scheduledLaunches.map(\.launch)))
        #expect(next.effects.isEmpty)
        next.handle(.realTime(1))
        #expect(launches(next) == [own])
    }

    @Test("16 of each application, and within the limit of its user's background tasks")
    func limits() throws {
        var settings = Settings()
        settings.limits.backgroundTasksPerUser = 20
        var stage = try Stage.launched(settings)
        for number in 0..<16 { try stage.perform(.scheduleLaunch(launch("\(number)", .network))) }
        let before = stage.machine
        #expect(throws: Refusal.limitExceeded("scheduled launches of org.example.Editor", limit: 16)) {
            try stage.perform(.scheduleLaunch(launch("more", .network)))
        }
        let isUnchanged = stage.machine == before
        #expect(isUnchanged)
        // One of the same name is replaced.
        try stage.perform(.scheduleLaunch(launch("3", .power)))
        for _ in 0..<4 {
            try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        }
        #expect(throws: Refusal.self) {
            try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        }
        let other = ScheduledLaunch(owner: try owner(Self.user, "org.example.B"), name: "", trigger: .power)
        #expect(throws: Refusal.self) { try stage.perform(.scheduleLaunch(other)) }
        try stage.perform(.scheduleLaunch(launch("", .power, of: 1001)))
    }

    @Test("a suspended application is thawed, told, and gets a background task's worth of time")
    func woken() throws {
        var stage = try Stage.launched(suspension: .automatic)
        stage.pass(5_000_000)
        stage.settle()
        #expect(stage.state == .suspended)
        stage.forget()
        try stage.perform(.deliver(stage.number, [.scheduledLaunchDue("refresh")], "time"))
        stage.settle()
        #expect(stage.state == .background)
        let told = stage.heard(.delegate).filter { $0.signal == .scheduledLaunchDue }
        #expect(told == [.scheduledLaunchDue("refresh", task: 1)])
        // Longer than a grace period, as long as a task.
        stage.pass(29_000_000)
        #expect(stage.state == .background)
        try stage.perform(.endBackgroundTask(stage.number, task: 1))
        stage.pass(5_000_000)
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test("a launched application is told after its launch, once")
    func launched() throws {
        var stage = Stage()
        try stage.register(delegate: false, suspension: .automatic) {
            $0.launched = true
            $0.launchMode = .background
            $0.deliveries = [.scheduledLaunchDue("sync")]
        }
        #expect(stage.application.tasks.map(\.name) == ["scheduled launch sync"])
        let record = try #require(stage.machine.record(of: stage.number))
        var next = Machine()
        let number = try next.restore(record)
        #expect(next.record(of: number) == record)
        #expect(stage.heard(.delegate).isEmpty)
        try stage.register { $0.byItself = true }
        #expect(stage.heard(.delegate).last == .scheduledLaunchDue("sync", task: 1))
        #expect(stage.heard(.delegate).contains { $0.signal == .didFinishLaunching })
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        #expect(stage.heard(.delegate).count { $0.signal == .scheduledLaunchDue } == 1)
        stage.handle(.disconnected(Stage.delegate))
        #expect(stage.application.tasks.count == 1)
        stage.pass(30_000_000)
        #expect(stage.application.tasks.isEmpty)
    }
}

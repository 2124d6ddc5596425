import AppStateContract
import Testing

@testable import LifeCycle

/// Grace period, acknowledgements, tasks, holds and stops (§§ 2 and 4).
@Suite("Suspension")
struct SuspensionTests {
    private static let second: Microseconds = 1_000_000

    /// An automatic application that has just entered the background, and the serial of its signal.
    private func inBackground(_ settings: Settings = Settings()) throws -> (stage: Stage, serial: UInt64) {
        var stage = try Stage.launched(suspension: .automatic, settings)
        try stage.focus()
        stage.forget()
        try stage.minimize()
        let serial = stage.heard(.delegate).compactMap { $0.until(.didEnterBackground)?.serial }.first
        return (stage, try #require(serial))
    }

    @Test("DidEnterBackground carries the end of the grace period, and policy suspends at that time")
    func deadline() throws {
        var (stage, serial) = try inBackground()
        let deadline = stage.now + 5 * Self.second
        #expect(stage.heard(.delegate).contains(.didEnterBackground(serial: serial, deadline: deadline)))
        stage.pass(5 * Self.second - 1)
        #expect(stage.holds.isEmpty)
        stage.pass(1)
        #expect(stage.holds == [.policy])
        #expect(stage.effects.contains(.stop(stage.number)))
        #expect(stage.state == .background, "not before the stop was seen")
        stage.settle()
        #expect(stage.state == .suspended)
    }

    @Test("an acknowledgement suspends at once; a second one, or one with another serial, changes nothing")
    func acknowledgement() throws {
        var (stage, serial) = try inBackground()
        #expect(throws: Refusal.self) {
            try stage.perform(.acknowledge(stage.number, serial: serial + 1, by: Stage.delegate))
        }
        #expect(throws: Refusal.notDelegate(":1.66", stage.number)) {
            try stage.perform(.acknowledge(stage.number, serial: serial, by: ":1.66"))
        }
        // Serial 0 is that of a signal with nothing to acknowledge.
        let before = stage.application
        try stage.perform(.acknowledge(stage.number, serial: 0, by: Stage.delegate))
        #expect(stage.application == before && stage.holds.isEmpty)
        try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
        #expect(stage.holds == [.policy])
        stage.settle()
        try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
        #expect(stage.state == .suspended)
    }

    @Test("policy does not suspend manual and never, and their deadline never comes")
    func notAutomatic() throws {
        for suspension in [SuspensionPolicy.manual, .never] {
            var stage = try Stage.launched(suspension: suspension)
            try stage.focus()
            try stage.minimize()
            let deadlines = stage.heard(.delegate).compactMap { $0.until(.didEnterBackground)?.deadline }
            #expect(deadlines == [.never])
            stage.pass(3_600 * Self.second)
            #expect(stage.state == .background)
        }
    }

    @Test("a stop voids an awaited acknowledgement, and running again starts a fresh grace period")
    func stopVoids() throws {
        var (stage, serial) = try inBackground()
        stage.pass(4 * Self.second)
        stage.stopBySomebody()
        stage.pass(60 * Self.second)
        stage.handle(.continued(stage.number))
        #expect(stage.state == .background)
        try stage.perform(.acknowledge(stage.number, serial: serial, by: Stage.delegate))
        #expect(stage.holds.isEmpty, "void")
        stage.pass(5 * Self.second - 1)
        #expect(stage.holds.isEmpty)
        stage.pass(1)
        #expect(stage.holds == [.policy])
    }

    @Test("a background task holds policy off; it is warned before its limit and ended at the limit")
    func task() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        let answer = try stage.perform(
            .beginBackgroundTask(stage.number, name: "upload", by: Stage.delegate))
        #expect(answer == .task(1))
        stage.pass(60 * Self.second)
        try stage.minimize()
        let begun = stage.now
        stage.forget()
        stage.pass(24 * Self.second - 1)
        #expect(stage.heard(.delegate).isEmpty)
        stage.pass(1)
        let deadline = begun + 30 * Self.second
        #expect(stage.heard(.delegate) == [.backgroundTaskWillExpire(task: 1, deadline: deadline)])
        #expect(stage.holds.isEmpty)
        stage.pass(6 * Self.second)
        #expect(stage.application.tasks.isEmpty)
        #expect(stage.holds == [.policy])
    }

    @Test("the end of the last task suspends at once after the grace period; a task ends with its connection")
    func taskEnds() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.focus()
        try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        try stage.perform(.beginBackgroundTask(stage.number, name: "b", by: ":1.70"))
        try stage.minimize()
        stage.pass(10 * Self.second)
        #expect(stage.holds.isEmpty)
        stage.handle(.disconnected(":1.70"))
        #expect(stage.application.tasks.map(\.name) == ["a"])
        #expect(stage.holds.isEmpty)
        try stage.perform(.endBackgroundTask(stage.number, task: 1))
        #expect(stage.holds == [.policy])
        stage.settle()
        // Nobody requested it.
        let edge = Announcement.Payload.edge(Edge(.background, .suspended), .policy)
        #expect(stage.heard(.subscribers).contains { $0.payload == edge })
        #expect(throws: Refusal.noSuchTask(1)) {
            try stage.perform(.endBackgroundTask(stage.number, task: 1))
        }
    }

    @Test("limits of tasks are paused while the application is stopped")
    func standStill() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.perform(.beginBackgroundTask(stage.number, name: "a", by: Stage.delegate))
        stage.pass(20 * Self.second)
        stage.stopBySomebody()
        stage.pass(500 * Self.second)
        stage.handle(.continued(stage.number))
        #expect(stage.application.tasks.count == 1)
        stage.pass(9 * Self.second)
        #expect(stage.application.tasks.count == 1)
        stage.pass(Self.second)
        #expect(stage.application.tasks.isEmpty)
    }

    @Test("only granted background modes hold policy off")
    func modes() throws {
        var settings = Settings()
        settings.applications["org.example.Editor"] = Settings.Override()
        var stage = try Stage.launched(suspension: .automatic, settings) { $0.backgroundModes = ["audio"] }
        stage.pass(5 * Self.second)
        #expect(stage.holds == [.policy])
        stage.settle()
        settings.applications["org.example.Editor"]?.backgroundModes = ["audio"]
        var granted = try Stage.launched(suspension: .automatic, settings) {
            $0.backgroundModes = ["audio", "fetch"]
        }
        granted.pass(60 * Self.second)
        #expect(granted.holds.isEmpty)
        #expect(granted.application.backgroundModes == ["audio"])
    }

    @Test("focus releases policy's hold, but neither a request nor a foreign stop")
    func focusReleases() throws {
        var (stage, _) = try inBackground()
        stage.pass(5 * Self.second)
        stage.settle()
        try stage.focus()
        #expect(stage.effects.contains(.resume(stage.number)))
        stage.settle()
        #expect(stage.state == .active)
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        stage.settle()
        try stage.unfocus()
        try stage.focus()
        #expect(stage.state == .suspended && stage.holds == [.request])
        try stage.perform(.resume(stage.number, holder: "uid:1000"))
        stage.settle()
        #expect(stage.state == .active)
        stage.stopBySomebody()
        try stage.unfocus()
        try stage.focus()
        #expect(stage.state == .suspended && stage.holds == [.signal])
    }

    /// The holders, each with its own way to release its hold.
    enum Holder: CaseIterable { case user, root, stranger }

    @Test("in every order of taking and releasing holds, the application runs exactly when it has no hold")
    func permutations() throws {
        let orders = Self.permutations(of: Holder.allCases)
        for taking in orders {
            for letting in orders {
                var stage = try Stage.launched()
                var held: Set<Holder> = []
                for holder in taking {
                    held.insert(holder)
                    switch holder {
                    case .user: try stage.perform(.suspend(stage.number, holder: "uid:1000"))
                    case .root: try stage.perform(.suspend(stage.number, holder: "uid:0"))
                    case .stranger: stage.stopBySomebody()
                    }
                    stage.settle()
                    #expect(stage.state == .suspended, "\(taking) \(letting)")
                }
                for holder in letting {
                    held.remove(holder)
                    switch holder {
                    // A user's Resume also lifts a foreign stop.
                    case .user:
                        try stage.perform(.resume(stage.number, holder: "uid:1000"))
                        held.remove(.stranger)
                    case .root:
                        try stage.perform(.resume(stage.number, holder: "uid:0"))
                        held.remove(.stranger)
                    case .stranger:
                        if stage.application.isStopped { stage.handle(.continued(stage.number)) }
                    }
                    stage.settle()
                    #expect(
                        (stage.state == .suspended) == !held.isEmpty, "\(taking) \(letting) at \(holder)")
                }
                #expect(stage.holds.isEmpty)
            }
        }
    }

    private static func permutations<Element>(of elements: [Element]) -> [[Element]] {
        guard elements.count > 1 else { return [elements] }
        return elements.indices.flatMap { index -> [[Element]] in
            var rest = elements
            let first = rest.remove(at: index)
            return permutations(of: rest).map { [first] + $0 }
        }
    }

    @Test("a foreign SIGCONT does not lift a hold: the application is stopped again, but not forever")
    func contest() throws {
        var stage = try Stage.launched()
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        stage.settle()
        for _ in 0..<5 {
            stage.handle(.continued(stage.number))
            #expect(stage.holds == [.request])
            stage.settle()
            #expect(stage.state == .suspended)
        }
        stage.handle(.continued(stage.number))
        #expect(stage.holds.isEmpty && stage.state == .background)
        #expect(stage.effects.contains(.notice(stage.number, .contested)))
        #expect(stage.effects.contains(.resume(stage.number)))
    }

    @Test("an application that another process continues before it is stopped loses all holds")
    func contestedWhileStopping() throws {
        var stage = try Stage.launched()
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        stage.handle(.contested(stage.number))
        #expect(stage.holds.isEmpty && stage.state == .background && !stage.application.isPending)
        #expect(stage.effects.contains(.notice(stage.number, .contested)))
        #expect(stage.effects.contains(.resume(stage.number)))
    }

    @Test("an objection postpones policy's stop by a grace period", arguments: [false, true])
    func objection(afterwards: Bool) throws {
        var (stage, _) = try inBackground()
        stage.finding = afterwards ? nil : .objection("a debugger is attached")
        stage.pass(5 * Self.second)
        if afterwards {
            stage.handle(.checked(stage.number, .clear(isStopped: true)))
            stage.handle(.stopCompleted(stage.number))
            stage.handle(.checked(stage.number, .objection("a debugger is attached")))
        }
        #expect(stage.holds.isEmpty && !stage.application.isPending)
        #expect(stage.effects.contains(.stop(stage.number)) == afterwards)
        #expect(stage.effects.contains(.resume(stage.number)))
        #expect(stage.effects.contains(.notice(stage.number, .objection("a debugger is attached"))))
        #expect(!stage.words(.subscribers).contains("background→suspended"))
        stage.finding = .clear(isStopped: true)
        stage.pass(5 * Self.second)
        #expect(stage.holds == [.policy])
        stage.settle()
        #expect(stage.state == .suspended)
        stage.handle(.objected(stage.number, "somebody waits for a file lock"))
        #expect(
            stage.holds.isEmpty
                && stage.effects.last == .notice(stage.number, .objection("somebody waits for a file lock")))
    }

    @Test("policy checks for objections before and after the stop, and announces the suspension only then")
    func looks() throws {
        var (stage, _) = try inBackground()
        stage.finding = nil
        stage.forget()
        stage.pass(5 * Self.second)
        #expect(stage.effects.contains(.check(stage.number, isStopped: false)))
        #expect(!stage.effects.contains(.stop(stage.number)))
        // The completion of an earlier order.
        stage.handle(.stopCompleted(stage.number))
        stage.handle(.checked(stage.number, .clear(isStopped: true)))
        stage.handle(.stopCompleted(stage.number))
        #expect(stage.effects.contains(.stop(stage.number)))
        #expect(stage.effects.last == .check(stage.number, isStopped: true) && stage.state == .background)
        stage.forget()
        // Another process has continued it in the meantime.
        stage.handle(.checked(stage.number, .clear(isStopped: false)))
        #expect(stage.effects == [.stop(stage.number)])
        stage.handle(.stopCompleted(stage.number))
        stage.handle(.checked(stage.number, .clear(isStopped: true)))
        #expect(stage.state == .suspended && stage.holds == [.policy])
    }

    @Test("a user's Suspend waits for no check, and no objection undoes it", arguments: [false, true])
    func looksForNobody(isStopped: Bool) throws {
        var (stage, _) = try inBackground()
        stage.finding = nil
        stage.pass(5 * Self.second)
        if isStopped {
            stage.handle(.checked(stage.number, .clear(isStopped: true)))
            stage.handle(.stopCompleted(stage.number))
        }
        stage.forget()
        try stage.perform(.suspend(stage.number, holder: "uid:1000"))
        #expect(stage.effects.contains(.stop(stage.number)))
        stage.handle(.checked(stage.number, .objection("a debugger is attached")))
        stage.handle(.stopCompleted(stage.number))
        #expect(stage.state == .suspended && stage.holds == [.policy, .request])
        #expect(!stage.effects.contains(.check(stage.number, isStopped: true)))
    }

    @Test("observe mode reports once what it would suspend, and suspends nothing")
    func observe() throws {
        var settings = Settings()
        settings.mode = .observe
        var (stage, _) = try inBackground(settings)
        stage.pass(60 * Self.second)
        #expect(stage.holds.isEmpty && stage.application.wouldBeSuspended)
        let notices = stage.effects.filter { $0 == .notice(stage.number, .wouldSuspend) }
        #expect(notices.count == 1)
        try stage.focus()
        #expect(!stage.application.wouldBeSuspended)
    }

    /// The deadlines in the DidEnterBackground signals to the delegate.
    private func deadlines(_ stage: Stage) -> [Microseconds] {
        stage.heard(.delegate).compactMap { $0.until(.didEnterBackground)?.deadline }
    }
}

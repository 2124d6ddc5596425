import AppStateContract
import Testing

@testable import LifeCycle

/// What other processes send to an application, and applications that a session agent has launched.
@Suite("Deliveries and launches")
struct DeliveryTests {
    private static let message = Announcement.messageReceived(from: "org.example.B", name: "hi", payload: [])

    private func registration(_ pid: Int32, byItself: Bool) throws -> Registration {
        let id = try #require(ApplicationID("org.example.A"))
        var registration = Registration(
            id: id, process: ProcessID(pid: pid, startTime: 1), user: 1000, session: .user(1000))
        registration.byItself = byItself
        if byItself { registration.delegate = ":1.1" }
        return registration
    }

    private func number(_ answer: Answer) throws -> ApplicationNumber {
        guard case .application(let number) = answer else { throw TestFailureText("no application") }
        return number
    }

    private struct TestFailureText: Error {
        let text: String
        init(_ text: String) { self.text = text }
    }

    /// The names of the signals that the delegate receives, without state changes.
    private func told(_ effects: [Effect]) -> [ApplicationSignal] {
        effects.compactMap {
            guard case .announce(_, let announcement, let audience) = $0, audience.contains(.delegate),
                announcement.edge == nil
            else { return nil }
            return announcement.signal
        }
    }

    @Test("a delivery to an application without a delegate is refused")
    func noDelegate() throws {
        var machine = Machine()
        let number = try number(
            machine.perform(.register(registration(1, byItself: false)), at: 0).answer)
        #expect(throws: Refusal.noDelegate(number)) {
            try machine.perform(.deliver(number, [Self.message], "message"), at: 1)
        }
    }

    @Test("a message that arrives during the launch is delivered after it")
    func launching() throws {
        var machine = Machine()
        let number = try number(machine.perform(.register(registration(1, byItself: true)), at: 0).answer)
        let sent = try machine.perform(.deliver(number, [Self.message], "message"), at: 1).effects
        #expect(told(sent) == [])
        let launched = try machine.perform(.finishLaunching(number, by: ":1.1"), at: 2).effects
        #expect(told(launched) == [.willEnterForeground, .messageReceived])
        #expect(machine.applications[number]?.backlog == Backlog())
    }

    @Test(
        "a message resumes what policy has suspended, and waits if a user has requested that",
        arguments: [false, true])
    func suspended(isRequested: Bool) throws {
        var settings = Settings()
        settings.backgroundGrace = 1_000
        var stage = try Stage.launched(suspension: .automatic, settings)
        try stage.minimize()
        stage.now += 1_000_000
        stage.handle(.timePassed)
        if isRequested { try stage.perform(.suspend(stage.number, holder: "uid:1000")) }
        stage.handle(.stopCompleted(stage.number))
        #expect(stage.state == .suspended)
        stage.forget()
        try stage.perform(.deliver(stage.number, [Self.message], "message"))
        #expect(stage.effects.contains(.resume(stage.number)) != isRequested)
        #expect(stage.application.holds.isEmpty != isRequested)
    }

    @Test("a backlog keeps the latest message of each sender and name, and all URLs")
    func coalesced() throws {
        var backlog = Backlog()
        backlog.add(.messageReceived(from: "a", name: "x", payload: ["1"]))
        backlog.add(.openURLs(["u:1"], options: ["old"]))
        backlog.add(.messageReceived(from: "b", name: "x", payload: ["2"]))
        backlog.add(.continueUserActivity("t", info: ["1"]))
        backlog.add(.continueUserActivity("t", info: ["2"]))
        backlog.add(.messageReceived(from: "a", name: "x", payload: ["3"]))
        backlog.add(.openURLs(["u:2"], options: ["new"]))
        let expected: [Announcement] = [
            .messageReceived(from: "b", name: "x", payload: ["2"]), .continueUserActivity("t", info: ["2"]),
            .messageReceived(from: "a", name: "x", payload: ["3"]),
            .openURLs(["u:1", "u:2"], options: ["new"]),
        ]
        #expect(backlog.waitingBytes == expected.reduce(0) { $0 + $1.waitingBytes })
        var record = Record()
        for fields in backlog.fields { record.add("missed", fields) }
        #expect(try Backlog(record, "missed") == backlog)
        #expect(backlog.pop(along: [], withDeliveries: false) == [])
        #expect(backlog.pop(along: [], withDeliveries: true) == expected)
        #expect(backlog == Backlog())
    }

    @Test("a launched application is not-running until its own registration has finished launching")
    func launched() throws {
        var machine = Machine()
        var first = try registration(1, byItself: false)
        first.launched = true
        first.launchMode = .foreground
        let number = try number(machine.perform(.register(first), at: 0).answer)
        #expect(machine.applications[number]?.state == .notRunning)
        let own = try machine.perform(.register(registration(1, byItself: true)), at: 1)
        #expect(own.answer == .application(number))
        #expect(told(own.effects) == [.willFinishLaunching, .didFinishLaunching])
        let done = try machine.perform(.finishLaunching(number, by: ":1.1"), at: 2).effects
        #expect(told(done) == [.willEnterForeground])
        #expect(machine.applications[number]?.state == .inactive)
        let again = try registration(1, byItself: true)
        #expect(throws: Refusal.alreadyRegistered(again.process, number)) {
            try machine.perform(.register(again), at: 3)
        }
    }

    @Test("an application launched in the background and reclaimed is relaunched once memory is available")
    func relaunched() throws {
        var machine = Machine()
        var first = try registration(1, byItself: false)
        first.launched = true
        first.launchMode = .background
        let number = try number(machine.perform(.register(first), at: 0).answer)
        #expect(machine.applications[number]?.state == .background)
        var rule = Rule()
        rule.relaunchReclaimed = true
        _ = try machine.perform(.configure(number, rule), at: 1)
        machine.pressure.level = .critical
        machine.update(number, .policy) { $0.termination = .atOnce(.reclaimed) }
        let gone = machine.handle(.exited(first.process, .killed), at: 2)
        func relaunches(_ effects: [Effect]) -> Int {
            effects.count { if case .relaunch = $0 { true } else { false } }
        }
        #expect(relaunches(gone) == 0)
        #expect(isRelaunched(gone) == [true])
        machine.pressure.level = .normal
        #expect(relaunches(machine.handle(.timePassed, at: 3)) == 1)
        #expect(relaunches(machine.handle(.timePassed, at: 4)) == 0)
    }

    /// What the endings among these effects say.
    private func isRelaunched(_ effects: [Effect]) -> [Bool] {
        effects.compactMap { if case .ended(_, let ending) = $0 { ending.isRelaunched } else { nil } }
    }

    @Test("an application that is not started again is reported with the true reason")
    func notRelaunched() throws {
        var machine = Machine()
        machine.pressure.level = .critical
        let others = try RelaunchTests.many(Relaunches.mostWaiting, of: 1000)
        for other in others { #expect(machine.relaunches.add(other, at: 0) == nil) }
        let number = try number(
            machine.perform(.register(registration(1, byItself: false)), at: 0).answer)
        var rule = Rule()
        rule.relaunchReclaimed = true
        _ = try machine.perform(.configure(number, rule), at: 1)
        machine.update(number, .policy) { $0.termination = .atOnce(.reclaimed) }
        let gone = machine.handle(.exited(ProcessID(pid: 1, startTime: 1), .killed), at: 2)
        #expect(
            gone.contains(
                .notice(number, .notRelaunched("16 other applications of its user wait to be started again")))
        )
        #expect(isRelaunched(gone) == [false])
    }
}

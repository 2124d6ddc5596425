import AppStateContract
import Testing

@testable import LifeCycle

/// Inhibitors, and what clients are told of policy's plans and of windows.
@Suite("Inhibitors and outlook")
struct OutlookTests {
    private func idle(_ desk: inout Desk) throws -> ApplicationNumber {
        try desk.register(desk.process()) { $0.suspension = .automatic }
    }

    private func inhibit(_ desk: inout Desk, _ number: ApplicationNumber, _ id: UInt64 = 1) throws {
        try desk.perform(.inhibit(number, Application.Inhibitor(id, who: "make", why: "a build")))
    }

    private func changes(_ desk: Desk) -> Set<ApplicationProperty> {
        desk.effects.reduce(into: []) { changes, effect in
            if case .changed(_, let properties) = effect { changes.formUnion(properties) }
        }
    }

    @Test("an inhibitor resumes what policy has suspended, and policy waits anew once the last one has ended")
    func inhibitors() throws {
        var desk = Desk()
        let a = try idle(&desk)
        desk.pass(5 * Desk.second)
        desk.settle()
        #expect(desk.state(a) == .suspended)
        try inhibit(&desk, a)
        try inhibit(&desk, a, 2)
        desk.settle()
        desk.pass(60 * Desk.second)
        #expect(desk.state(a) == .background)
        #expect(desk.machine.objections(to: a) == Array(repeating: "inhibited by make: a build", count: 2))
        desk.handle(.uninhibited(a, 1))
        desk.pass(60 * Desk.second)
        #expect(desk.state(a) == .background)
        desk.forget()
        desk.handle(.uninhibited(a, 2))
        #expect(changes(desk) == [.inhibitors, .objections, .suspensionDeadline, .reclaimRank])
        desk.pass(4 * Desk.second)
        #expect(desk.state(a) == .background)
        desk.pass(Desk.second)
        desk.settle()
        #expect(desk.state(a) == .suspended)
    }

    @Test("an inhibitor does not prevent a suspension on request")
    func request() throws {
        var desk = Desk()
        let a = try idle(&desk)
        try inhibit(&desk, a)
        try desk.perform(.suspend(a, holder: "uid:1000"))
        desk.settle()
        #expect(desk.state(a) == .suspended)
    }

    @Test("the next daemon waits for a grace period in which inhibitors can be taken again")
    func restart() throws {
        var desk = Desk()
        let a = try idle(&desk)
        try inhibit(&desk, a)
        desk.pass(60 * Desk.second)
        let record = try #require(desk.machine.record(of: a))
        var next = Desk()
        next.now = desk.now
        _ = try next.machine.restore(record)
        #expect(next.machine.record(of: a) == record)
        #expect(
            next.machine.reassert(a, at: next.now).contains { if case .check = $0 { true } else { false } }
                == false)
        next.pass(4 * Desk.second)
        #expect(next.state(a) == .background)
        next.pass(Desk.second)
        next.settle()
        #expect(next.state(a) == .suspended)
    }

    @Test(
        "what policy has found when it wanted to suspend an application is an objection until it looks again")
    func found() throws {
        var stage = try Stage.launched(delegate: false, suspension: .automatic)
        stage.finding = .objection("network: 1 MB/s")
        stage.pass(5 * Desk.second)
        #expect(stage.application.outlook.objections == ["network: 1 MB/s"])
        #expect(stage.application.outlook.deadline == stage.now + 5 * Desk.second)
        stage.finding = .clear(isStopped: true)
        stage.pass(5 * Desk.second)
        stage.settle()
        #expect(stage.state == .suspended)
        #expect(stage.application.outlook == Application.Outlook(objections: [], deadline: nil, rank: .held))
    }

    @Test("windows have scene states, and each change of what is listed is announced")
    func windows() throws {
        var desk = Desk()
        let process = desk.process()
        let a = try desk.register(process)
        func shown() -> [SceneState] { desk.machine.shownWindows(of: a).map(\.state) }
        func announcements() -> Int {
            desk.effects.count {
                if case .announce(a, let announcement, let audience) = $0 {
                    announcement.signal == .windowsChanged && audience == .subscribers
                } else {
                    false
                }
            }
        }
        try desk.update(1, process, focused: true)
        try desk.update(2, process)
        try desk.update(3, process, minimized: true)
        #expect(shown() == [.foregroundActive, .foregroundInactive, .background])
        #expect(announcements() == 3)
        desk.forget()
        try desk.update(2, process)
        #expect(announcements() == 0)
        try desk.perform(.suspend(a, holder: "uid:1000"))
        desk.settle()
        #expect(shown() == [.background, .background, .background])
        #expect(announcements() == 1)
        try desk.perform(.resume(a, holder: "uid:1000"))
        desk.settle()
        #expect(shown().first == .foregroundActive)
        desk.forget()
        desk.handle(.session(process.session, inFront: false, isLocked: true))
        #expect(shown() == [.background, .background, .background])
        #expect(announcements() == 1)
        #expect(changes(desk).contains(.protectedDataAvailable))
    }
}

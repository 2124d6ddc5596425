import AppStateContract
import Testing

@testable import LifeCycle

/// Significant changes of the time (§ 3).
@Suite("Changes of the time")
struct TimeChangeTests {
    private func told(_ stage: Stage, _ audience: Audience) -> [TimeChange] {
        stage.heard(audience).compactMap { announcement in
            guard announcement.signal == .significantTimeChange,
                case .cause(let change) = announcement.payload
            else { return nil }
            return change
        }
    }

    @Test(
        "a time change is announced at once in every state but suspended",
        arguments: [LifeCycleState.active, .inactive, .background], TimeChange.allCases)
    func atOnce(_ state: LifeCycleState, _ change: TimeChange) throws {
        var stage = try Stage.launched()
        try stage.bring(to: state)
        stage.forget()
        stage.handle(.timeChanged(change))
        #expect(told(stage, .delegate) == [change] && told(stage, .subscribers) == [change])
        #expect(stage.words(.delegate) == ["SignificantTimeChange"])
    }

    @Test("a suspended application learns of the last change when it runs; subscribers learn of all at once")
    func suspended() throws {
        var stage = try Stage.launched()
        try stage.bring(to: .background)
        try stage.bring(to: .suspended)
        stage.forget()
        for change in [TimeChange.midnight, .clockSet, .midnight, .timeZone] {
            stage.handle(.timeChanged(change))
        }
        #expect(told(stage, .delegate) == [])
        #expect(told(stage, .subscribers) == [.midnight, .clockSet, .midnight, .timeZone])
        // The next daemon does the same.
        let record = try #require(stage.machine.record(of: stage.number))
        var next = Machine()
        _ = try next.restore(record)
        #expect(next.record(of: stage.number) == record)
        stage.forget()
        stage.handle(.continued(stage.number))
        #expect(told(stage, .delegate) == [.timeZone])
    }

    @Test("an application that is being launched receives no time change")
    func launching() throws {
        var stage = Stage()
        try stage.register()
        stage.forget()
        stage.handle(.timeChanged(.midnight))
        #expect(stage.effects == [])
    }
}

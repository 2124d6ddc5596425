@testable import LifeCycle

/// A scene on one machine, with its own clock.
protocol Scene {
    var machine: Machine { get set }
    var now: Microseconds { get set }
    /// Everything that was ordered since `forget`.
    var effects: [Effect] { get set }
    /// What a check finds that speaks against a stop; nil: the check does not finish.
    var finding: CheckFinding? { get }
}

extension Scene {
    var finding: CheckFinding? { .clear(isStopped: true) }

    @discardableResult
    mutating func perform(_ request: Request) throws -> Answer {
        let (answer, effects) = try machine.perform(request, at: now)
        note(effects)
        return answer
    }

    mutating func handle(_ fact: Fact) { note(machine.handle(fact, at: now)) }

    private mutating func note(_ effects: [Effect]) {
        self.effects += effects
        for case .check(let number, _) in effects {
            if let finding { handle(.checked(number, finding)) }
        }
    }

    mutating func pass(_ span: Microseconds) {
        let end = now + span
        while let next = machine.nextDeadline, next <= end {
            now = max(now, next)
            handle(.timePassed)
        }
        now = end
    }

    /// Confirms every stop and continuation that was ordered, as the shell does.
    mutating func settle() {
        for number in machine.applications.keys.sorted() {
            while let application = machine.applications[number], application.isPending {
                handle(
                    application.stop.enforcement == .continuing
                        ? .continued(number) : .stopped(number, holder: nil))
            }
        }
    }

    mutating func forget() { effects = [] }
}

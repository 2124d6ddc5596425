import LifeCycle

/// What waits until something has come about.
final class Waits {
    private struct Wait {
        let until: Microseconds
        let isOver: () -> Bool
        let proceed: (_ isOver: Bool) -> Void
    }

    /// In the order in which they began.
    private var waits: [Wait] = []

    /// - Parameters:
    ///   - until: when the wait ends in vain.
    ///   - isOver: asked after each step.
    ///   - proceed: called once, with false if the wait was in vain. It may wait again.
    func add(
        until: Microseconds, for isOver: @escaping () -> Bool,
        then proceed: @escaping (_ isOver: Bool) -> Void
    ) {
        waits.append(Wait(until: until, isOver: isOver, proceed: proceed))
    }

    /// When the next one ends at the latest; nil: there is none.
    var nextEnd: Microseconds? { waits.lazy.map(\.until).min() }

    /// Must be called after each step.
    func settle(at now: Microseconds) {
        if waits.isEmpty { return }
        var ended: [(wait: Wait, isOver: Bool)] = []
        var rest: [Wait] = []
        for wait in waits {
            let isOver = wait.isOver()
            if isOver || wait.until <= now { ended.append((wait, isOver)) } else { rest.append(wait) }
        }
        waits = rest
        for (wait, isOver) in ended { wait.proceed(isOver) }
    }
}

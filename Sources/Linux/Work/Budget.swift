/// How much may be done before other work gets its turn.
///
/// Code that has a budget takes at least one step, spends the budget after each step, and remembers its
/// position.
public struct Budget {
    private let isOver: () -> Bool

    /// Lasts until `isOver` returns true, which is called after each step.
    public init(until isOver: @escaping () -> Bool) {
        self.isOver = isOver
    }

    /// Allows this many steps.
    public init(steps: Int) {
        var left = steps
        isOver = {
            left -= 1
            return left <= 0
        }
    }

    private init() { isOver = { false } }

    /// Allows everything at once.
    public static var unlimited: Budget { Budget() }

    /// Accounts for one step; returns whether it was the last.
    public func spend() -> Bool { isOver() }
}

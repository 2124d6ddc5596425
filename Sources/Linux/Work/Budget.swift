/// How much may be done before others have their turn.
///
/// Whoever has a budget takes one step at least, spends it after each, and remembers where it left off.
public struct Budget {
    private let isOver: () -> Bool

    /// Until `isOver` says so, which is asked after each step.
    public init(until isOver: @escaping () -> Bool) {
        self.isOver = isOver
    }

    /// So many steps.
    public init(steps: Int) {
        var left = steps
        isOver = {
            left -= 1
            return left <= 0
        }
    }

    private init() { isOver = { false } }

    /// All at once.
    public static var unlimited: Budget { Budget() }

    /// Accounts for one step; answers whether it was the last.
    public func spend() -> Bool { isOver() }
}

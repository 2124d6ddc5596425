import LifeCycle

/// How much of our time the calls of each user take: in the long run a fifth at most, so that nobody else waits for
/// somebody who never stops calling.
struct CallShare {
    private static let share: Microseconds = 5
    /// What the calls of one user may take at once: a desktop that starts has much to tell.
    private static let allowance: Microseconds = 1_000_000
    /// What one piece is charged at most: a machine that was paused is nobody's fault.
    private static let mostCharged: Microseconds = 20_000

    private var paces: [UInt32: Pace] = [:]

    /// When calls of this user are taken again; a time in the past means now. Root has no bound: it can end us, too.
    func due(of user: UInt32) -> Microseconds { user == 0 ? 0 : paces[user]?.due ?? 0 }

    /// A call of this user took so long.
    mutating func spend(_ time: Microseconds, of user: UInt32, at now: Microseconds) {
        if user == 0 { return }
        if paces[user] == nil { paces = paces.filter { !$0.value.isSettled(at: now) } }
        paces[user, default: Pace(credit: Self.allowance * Self.share)]
            .spend(min(time, Self.mostCharged) * Self.share, at: now)
    }
}

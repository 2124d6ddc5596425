import LifeCycle

/// How much of our time goes to each user, for that user's calls and for the work on that user's applications: in the
/// long run a fifth, so that nobody else waits for somebody who never stops calling.
final class WorkShare {
    private static let share: Microseconds = 5
    /// What one user's work may take at once: a desktop that starts has much to tell.
    static let allowance: Microseconds = 500_000
    /// What one piece is charged at most: a machine that was paused is nobody's fault.
    private static let mostCharged: Microseconds = 20_000

    /// What the bus takes to hand an answer on: dbus-daemon 1.14 was seen to take 2.3 ms for 1 MiB.
    private static let bytesPerMicrosecond = 512
    /// It serves nobody meanwhile, and nothing of it can be put off. So it is charged as if it took twenty times as long:
    /// a user's share is a fifth, and one call of others in a hundred may come behind a long answer.
    private static let weightOfBus = 20

    private var paces: [UInt32: Pace] = [:]

    /// When this user's work goes on; a time in the past means now. Root has no bound: it can end us, too.
    func due(of user: UInt32) -> Microseconds { user == 0 ? 0 : paces[user]?.due ?? 0 }

    /// Whose turn it is in a line.
    enum Place<Index> {
        case now(Index)
        /// None of them has a share left before.
        case later(Microseconds)
        /// There is nobody.
        case nobody
    }

    /// The first in a line whose user has a share left.
    func turn<Line: Collection>(
        in line: Line, at now: Microseconds, of user: (Line.Element) -> UInt32
    ) -> Place<Line.Index> {
        if let index = line.firstIndex(where: { due(of: user($0)) <= now }) { return .now(index) }
        return line.map { due(of: user($0)) }.min().map(Place.later) ?? .nobody
    }

    /// Something done for this user took so long.
    func spend(_ time: Microseconds, of user: UInt32, at now: Microseconds) {
        charge(min(time, Self.mostCharged), to: user, at: now)
    }

    /// The bus has an answer of so many bytes to hand on to this user.
    func charge(handingOn bytes: Int, to user: UInt32, at now: Microseconds) {
        charge(Microseconds(Self.weightOfBus * bytes / Self.bytesPerMicrosecond), to: user, at: now)
    }

    /// Something done for this user took so much of a processor, ours or the bus's.
    func charge(_ processorTime: Microseconds, to user: UInt32, at now: Microseconds) {
        if user == 0 { return }
        if paces[user] == nil { paces = paces.filter { !$0.value.isSettled(at: now) } }
        paces[user, default: Pace(credit: Self.allowance * Self.share)]
            .spend(processorTime * Self.share, at: now)
    }
}

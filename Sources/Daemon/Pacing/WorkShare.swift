import LifeCycle

/// Each user's share of the daemon's time, for that user's calls and for the work on that user's
/// applications. In the long run the share is at most a fifth, so that other users do not wait for a user who
/// never stops calling.
final class WorkShare {
    private static let share: Microseconds = 5
    /// What one user's work may take at once: a starting desktop has much to report.
    static let allowance: Microseconds = 500_000
    /// The most that is charged for one piece: no user is to blame for a machine that was paused.
    private static let mostCharged: Microseconds = 20_000

    /// How fast the bus forwards an answer: dbus-daemon 1.14 was seen to take 2.3 ms for 1 MiB.
    private static let bytesPerMicrosecond = 512
    /// The bus serves no other client meanwhile, and this work cannot be postponed. It is therefore charged
    /// as if it took twenty times as long: a user's share is a fifth, so at most one in a hundred calls of
    /// other users waits behind a long answer.
    private static let weightOfBus = 20

    /// How fast a disk takes what users save, at a guess. Other users' work waits for it meanwhile.
    private static let bytesToDiskPerMicrosecond = 256

    private var paces: [UInt32: Pace] = [:]

    /// When this user's work continues; a time in the past means now. Root has no limit, because root can also end the
    /// daemon.
    func due(of user: UInt32) -> Microseconds { user == 0 ? 0 : paces[user]?.due ?? 0 }

    /// Whose turn it is in a queue.
    enum Place<Index> {
        case now(Index)
        /// No user in the line has a share left before this time.
        case later(Microseconds)
        /// The line is empty.
        case nobody
    }

    /// The first in a line whose user has a share left.
    func turn<Line: Collection>(
        in line: Line, at now: Microseconds, of user: (Line.Element) -> UInt32
    ) -> Place<Line.Index> {
        if let index = line.firstIndex(where: { due(of: user($0)) <= now }) { return .now(index) }
        return line.map { due(of: user($0)) }.min().map(Place.later) ?? .nobody
    }

    /// Charges the user for something that took this long.
    func spend(_ time: Microseconds, of user: UInt32, at now: Microseconds) {
        charge(min(time, Self.mostCharged), to: user, at: now)
    }

    /// Charges the user for an answer of this many bytes that the bus must pass on.
    func charge(handingOn bytes: Int, to user: UInt32, at now: Microseconds) {
        charge(Microseconds(Self.weightOfBus * bytes / Self.bytesPerMicrosecond), to: user, at: now)
    }

    /// Charges the user for this many bytes that were written to the disk.
    func charge(writing bytes: Int, to user: UInt32, at now: Microseconds) {
        charge(Microseconds(bytes / Self.bytesToDiskPerMicrosecond), to: user, at: now)
    }

    /// Charges the user for something that took this much processor time, the daemon's or the bus's.
    func charge(_ processorTime: Microseconds, to user: UInt32, at now: Microseconds) {
        if user == 0 { return }
        if paces[user] == nil { paces = paces.filter { !$0.value.isSettled(at: now) } }
        paces[user, default: Pace(credit: Self.allowance * Self.share)]
            .spend(processorTime * Self.share, at: now)
    }
}

/// How often something may happen: a number of times at once, and after that once in each interval.
struct Pace {
    /// The time up to which everything done so far is accounted for.
    private var paid: Microseconds = 0
    /// How much may be owed.
    let credit: Microseconds

    init(credit: Microseconds) { self.credit = credit }

    /// When it may happen again; a time in the past means now.
    var due: Microseconds { paid > credit ? paid - credit : 0 }

    /// It happened, at this price.
    mutating func spend(_ price: Microseconds, at now: Microseconds) { paid = max(paid, now) + price }

    /// Whether nothing is owed any longer.
    func isSettled(at now: Microseconds) -> Bool { paid <= now }
}

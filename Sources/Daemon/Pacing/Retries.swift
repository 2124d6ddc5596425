import AppStateBus
import LifeCycle
import Linux

/// Things that the kernel completes a little later without telling us: looked at again shortly after, ever
/// less often, by one timer.
///
/// Work whose amount a user decides is done here, too, piece by piece: one look takes no longer than a turn. Users take
/// turns, and in the long run the work for one takes a bounded share of the time. What was begun first is ended first,
/// so that few things are half done at a time.
final class Retries<Key: Hashable> {
    /// What became of one attempt.
    enum Outcome {
        case settled
        /// There is more to do at once, but others have their turn first.
        case soon
        case later
    }

    private struct Entry {
        let user: UInt32
        var due: Microseconds
        var pause: Microseconds
        let begin: Microseconds
        /// Patience counts while there is nothing to do but wait.
        let patience: Microseconds
        var end: Microseconds
        var pieces = 0
        let mostPieces: Int
        /// Looks once more; answers whether it is settled.
        let attempt: () -> Outcome
        let givenUp: () -> Void
        /// Tells it from one that took its place.
        let serial: UInt64

        /// The first of a user's goes first, unless it never ends.
        var rank: (round: Int, serial: UInt64) { (pieces / 256, serial) }
    }

    /// Between the first look and the second: a stop takes some ten microseconds on an idle machine.
    private static var firstPause: Microseconds { 100 }
    /// A busy machine takes milliseconds: so long looks are close together.
    private static var eager: (span: Microseconds, pause: Microseconds) { (500_000, 5_000) }
    /// A process in uninterruptible sleep may take for ever: no more than one look a second.
    private static var longestPause: Microseconds { 1_000_000 }
    /// With many to look at, each is looked at less often.
    private static var pauseForEach: Microseconds { 200 }

    private let loop: EventLoop
    private let now: () -> Microseconds
    private var timer: Timer?
    private var entries: [Key: Entry] = [:]
    private let share: WorkShare
    /// When each user had the last turn.
    private var turns: [UInt32: UInt64] = [:]
    private var lastSerial: UInt64 = 0
    private var lastTurn: UInt64 = 0

    /// Work that a user can make much of: it gives way, and is charged to the user's share.
    convenience init(
        loop: EventLoop, now: @escaping () -> Microseconds, background: Background
    ) throws(BusFailure) {
        try self.init(loop: loop, now: now, share: background.share, background: background)
    }

    /// - Parameters:
    ///   - share: what each user's work may take.
    ///   - background: whom the work gives way to; nil: nobody.
    init(
        loop: EventLoop, now: @escaping () -> Microseconds, share: WorkShare, background: Background? = nil
    ) throws(BusFailure) {
        self.loop = loop
        self.now = now
        self.share = share
        timer = try loop.timer { [weak self] in
            guard let self else { return }
            guard let background else { return look() }
            background.run(self) { [weak self] in self?.look() }
        }
    }

    var isEmpty: Bool { entries.isEmpty }

    func contains(_ key: Key) -> Bool { entries[key] != nil }

    /// Tries until `attempt` answers `.settled` or `patience` is over; takes the place of what was tried for the key
    /// before.
    ///
    /// - Parameters:
    ///   - user: whose work it is.
    ///   - patience: how long it may go on answering `.later`.
    ///   - pieces: how often it may answer `.soon`.
    ///   - givenUp: called when either was over before it was settled.
    func work(
        on key: Key, of user: UInt32, for patience: Microseconds = .max / 2, atMost pieces: Int = .max,
        _ attempt: @escaping () -> Outcome, givenUp: @escaping () -> Void = {}
    ) {
        let now = now()
        lastSerial += 1
        entries[key] = Entry(
            user: user, due: now + Self.firstPause, pause: Self.firstPause, begin: now, patience: patience,
            end: now + patience, mostPieces: pieces, attempt: attempt, givenUp: givenUp, serial: lastSerial)
        arm()
    }

    func cancel(_ key: Key) {
        if entries.removeValue(forKey: key) != nil { arm() }
    }

    private func look() {
        let begin = now()
        let end = loop.now + Turn.length
        var lines: [UInt32: [(key: Key, serial: UInt64)]] = [:]
        let due = entries.filter { $0.value.due <= begin && share.due(of: $0.value.user) <= begin }
        for (key, entry) in due.sorted(by: { $0.value.rank > $1.value.rank }) {
            lines[entry.user, default: []].append((key, entry.serial))
        }
        var users = lines.keys.sorted { (turns[$0] ?? 0) > (turns[$1] ?? 0) }
        while let user = users.popLast() {
            guard let next = lines[user]?.popLast() else { continue }
            users.insert(user, at: 0)
            // Another attempt may have put something in its place.
            guard entries[next.key]?.serial == next.serial else { continue }
            attempt(next.key)
            let now = now()
            if now >= end { break }
            if share.due(of: user) > now { lines[user] = nil }
        }
        if entries.isEmpty { turns = [:] }
        arm()
    }

    private func attempt(_ key: Key) {
        guard let entry = entries[key] else { return }
        let before = now()
        let outcome = entry.attempt()
        let now = now()
        lastTurn += 1
        turns[entry.user] = lastTurn
        share.spend(now - before, of: entry.user, at: now)
        guard entries[key]?.serial == entry.serial else { return }
        switch outcome {
        case .settled:
            entries[key] = nil
        case .soon where entry.pieces < entry.mostPieces:
            entries[key]?.pieces += 1
            entries[key]?.pause = Self.firstPause
            entries[key]?.due = now
            entries[key]?.end = now + entry.patience
        case .later where now < entry.end:
            let eager = max(Self.eager.pause, Microseconds(entries.count) * Self.pauseForEach)
            let longest = now - entry.begin < Self.eager.span ? eager : Self.longestPause
            let pause = min(entry.pause * 2, longest)
            entries[key]?.pause = pause
            entries[key]?.due = now + pause
        case .soon, .later:
            entries[key] = nil
            entry.givenUp()
        }
    }

    private func arm() {
        if let due = entries.values.lazy.map({ [self] in max($0.due, share.due(of: $0.user)) }).min() {
            timer?.arm(at: due)
        } else {
            timer?.disarm()
        }
    }
}

/// How long one event may keep the others waiting.
final class Turn {
    /// A tenth of the 5 ms that nobody may be made to wait: what else the event costs is beside it, and a call that
    /// waits for a few of these takes some times as long as on a quiet daemon, not a hundred times.
    static let length: Microseconds = 500
    /// So many steps are free: what is small is done at once on a busy machine, too.
    private static let least = 64

    private let loop: EventLoop
    private let now: () -> Microseconds
    private var begin: Microseconds = 0
    private var steps = 0

    init(_ loop: EventLoop, _ now: @escaping () -> Microseconds) {
        self.loop = loop
        self.now = now
    }

    /// What may still be done within the present event, which many applications may share.
    var budget: Budget { Budget { [self] in isOver() } }

    private func isOver() -> Bool {
        if loop.now != begin { (begin, steps) = (loop.now, 0) }
        steps += 1
        return steps > Self.least && now() >= begin + Self.length
    }
}

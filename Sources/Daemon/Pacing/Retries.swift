import AppStateBus
import LifeCycle
import Linux

/// Waits for operations that the kernel completes a little later without notification: one timer triggers
/// checks, first at short and then at longer and longer intervals.
///
/// Work whose amount a user decides is also done here, piece by piece: one look takes no longer than a turn. Users take
/// turns, and in the long run the work for one user takes a bounded share of the time. Work that was begun
/// first is finished first, so that little work is half done at a time.
final class Retries<Key: Hashable> {
    /// The outcome of one attempt.
    enum Outcome {
        case settled
        /// There is more to do immediately, but others get their turn first.
        case soon
        case later
    }

    private struct Entry {
        let user: UInt32
        var due: Microseconds
        var pause: Microseconds
        let begin: Microseconds
        /// Time counts against this only while there is nothing to do but wait.
        let patience: Microseconds
        var end: Microseconds
        var pieces = 0
        let mostPieces: Int
        /// Looks once more; returns whether it is settled.
        let attempt: () -> Outcome
        let givenUp: () -> Void
        /// Distinguishes it from an entry that took its place.
        let serial: UInt64

        /// A user's oldest entry goes first, unless it never ends.
        var rank: (round: Int, serial: UInt64) { (pieces / 256, serial) }
    }

    /// The pause between the first look and the second: a stop takes some ten microseconds on an idle machine.
    private static var firstPause: Microseconds { 100 }
    /// A busy machine takes milliseconds: for this long the checks follow each other closely.
    private static var eager: (span: Microseconds, pause: Microseconds) { (500_000, 5_000) }
    /// A process in uninterruptible sleep may take forever: at most one check a second.
    private static var longestPause: Microseconds { 1_000_000 }
    /// The more entries there are, the less often each is checked.
    private static var pauseForEach: Microseconds { 200 }

    private let loop: EventLoop
    private let now: () -> Microseconds
    private var timer: Timer?
    private var entries: [Key: Entry] = [:]
    private let share: WorkShare
    /// The number of each user's last turn.
    private var turns: [UInt32: UInt64] = [:]
    private var lastSerial: UInt64 = 0
    private var lastTurn: UInt64 = 0

    /// For work that a user can cause in quantity: it yields to calls, and is charged to the user's share.
    convenience init(
        loop: EventLoop, now: @escaping () -> Microseconds, background: Background
    ) throws(BusFailure) {
        try self.init(loop: loop, now: now, share: background.share, background: background)
    }

    /// - Parameters:
    ///   - share: the time that each user's work may take.
    ///   - background: makes the work give way; nil: it does not.
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

    /// Tries until `attempt` returns `.settled` or `patience` is over. Replaces what was tried for the key before.
    ///
    /// - Parameters:
    ///   - user: whose work it is.
    ///   - patience: how long it may keep returning `.later`.
    ///   - pieces: how often it may return `.soon`.
    ///   - givenUp: called if one of the two limits was reached before it was settled.
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
            // Another attempt may have replaced the entry.
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

/// How long one event may delay the others.
final class Turn {
    /// A tenth of the 5 ms that no caller may be made to wait. The other costs of the event come on top, and a call
    /// that waits for a few such events takes some times as long as on a quiet daemon, not a hundred times.
    static let length: Microseconds = 500
    /// This many steps are free, so that small work is done at once even on a busy machine,
    private static let least = 64
    /// unless they take this much processor time: a user can make each step long.
    private static let longest: Microseconds = 4_000

    private let loop: EventLoop
    private let now: () -> Microseconds
    private var begin: Microseconds = 0
    private var processorBegin: Microseconds = 0
    private var steps = 0

    init(_ loop: EventLoop, _ now: @escaping () -> Microseconds) {
        self.loop = loop
        self.now = now
    }

    /// The budget for the rest of the present event, which many applications may share.
    var budget: Budget { Budget { [self] in isOver() } }

    private func isOver() -> Bool {
        if loop.now != begin { (begin, processorBegin, steps) = (loop.now, Clock.threadMicroseconds, 0) }
        steps += 1
        let now = now()
        if steps > Self.least { return now >= begin + Self.length }
        // To read the processor time takes a system call, and it never exceeds the time.
        return now >= begin + Self.longest && Clock.threadMicroseconds >= processorBegin + Self.longest
    }
}

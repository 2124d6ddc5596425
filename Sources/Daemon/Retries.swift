import AppStateBus
import LifeCycle
import Linux

/// Things that the kernel completes a little later without telling us: looked at again shortly after, ever
/// less often, by one timer.
///
/// Work whose amount a user decides is done here, too, piece by piece: one look takes no longer than a turn, and the
/// longest due goes first.
final class Retries<Key: Hashable> {
    /// What became of one attempt.
    enum Outcome {
        case settled
        /// There is more to do at once, but others have their turn first.
        case soon
        case later
    }

    private struct Entry {
        var due: Microseconds
        var pause: Microseconds
        let begin: Microseconds
        let end: Microseconds
        /// Looks once more; answers whether it is settled.
        let attempt: () -> Outcome
        let givenUp: () -> Void
        /// Tells it from one that took its place.
        let serial: UInt64
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
    private var lastSerial: UInt64 = 0

    init(loop: EventLoop, now: @escaping () -> Microseconds) throws(BusFailure) {
        self.loop = loop
        self.now = now
        timer = try loop.timer { [weak self] in self?.look() }
    }

    var isEmpty: Bool { entries.isEmpty }

    func contains(_ key: Key) -> Bool { entries[key] != nil }

    /// Tries until `attempt` answers true or `patience` is over; takes the place of what was tried for
    /// the key before.
    ///
    /// - Parameter givenUp: called when patience was over before `attempt` answered true.
    func start(
        _ key: Key, for patience: Microseconds, _ attempt: @escaping () -> Bool,
        givenUp: @escaping () -> Void = {}
    ) {
        work(on: key, for: patience, { attempt() ? .settled : .later }, givenUp: givenUp)
    }

    /// The same, for what is done piece by piece.
    func work(
        on key: Key, for patience: Microseconds, _ attempt: @escaping () -> Outcome,
        givenUp: @escaping () -> Void = {}
    ) {
        let now = now()
        lastSerial += 1
        entries[key] = Entry(
            due: now + Self.firstPause, pause: Self.firstPause, begin: now, end: now + patience,
            attempt: attempt, givenUp: givenUp, serial: lastSerial)
        arm()
    }

    func cancel(_ key: Key) {
        if entries.removeValue(forKey: key) != nil { arm() }
    }

    private func look() {
        let begin = now()
        let end = loop.now + Turn.length
        let due = entries.filter { $0.value.due <= begin }.sorted { $0.value.due < $1.value.due }
        for (key, entry) in due where entries[key]?.serial == entry.serial {
            let outcome = entry.attempt()
            let now = now()
            let isSettled = outcome == .settled
            if isSettled || now >= entry.end {
                // The attempt may have put another in its place.
                if entries[key]?.serial == entry.serial { entries[key] = nil }
                if !isSettled { entry.givenUp() }
            } else if entries[key]?.serial == entry.serial {
                let eager = max(Self.eager.pause, Microseconds(entries.count) * Self.pauseForEach)
                let longest = now - entry.begin < Self.eager.span ? eager : Self.longestPause
                let pause = outcome == .soon ? Self.firstPause : min(entry.pause * 2, longest)
                entries[key]?.pause = pause
                entries[key]?.due = outcome == .soon ? now : now + pause
            }
            if now >= end { break }
        }
        arm()
    }

    private func arm() {
        if let due = entries.values.lazy.map(\.due).min() {
            timer?.arm(at: due)
        } else {
            timer?.disarm()
        }
    }
}

/// How long one event may keep the others waiting.
final class Turn {
    /// Less than half of the 5 ms that nobody may be made to wait: what else the event costs is beside it.
    static let length: Microseconds = 2_000
    /// So many steps are free: what is small is done at once on a busy machine, too.
    private static let least = 32

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

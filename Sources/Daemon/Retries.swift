import AppStateBus
import LifeCycle

/// Things that the kernel completes a little later without telling us: looked at again shortly after, ever
/// less often, by one timer.
final class Retries<Key: Hashable> {
    private struct Entry {
        var due: Microseconds
        var pause: Microseconds
        let begin: Microseconds
        let end: Microseconds
        /// Looks once more; answers whether it is settled.
        let attempt: () -> Bool
        let givenUp: () -> Void
    }

    /// Between the first look and the second: a stop takes some ten microseconds on an idle machine.
    private static var firstPause: Microseconds { 100 }
    /// A busy machine takes milliseconds: so long looks are close together.
    private static var eager: (span: Microseconds, pause: Microseconds) { (500_000, 5_000) }
    /// A process in uninterruptible sleep may take for ever: no more than one look a second.
    private static var longestPause: Microseconds { 1_000_000 }
    /// With many to look at, each is looked at less often, ...
    private static var pauseForEach: Microseconds { 200 }
    /// ... and after so long the loop's other events have their turns.
    private static var slice: Microseconds { 1_000 }

    private let loop: EventLoop
    private let now: () -> Microseconds
    private var timer: Timer?
    private var entries: [Key: Entry] = [:]

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
        let now = now()
        entries[key] = Entry(
            due: now + Self.firstPause, pause: Self.firstPause, begin: now, end: now + patience,
            attempt: attempt, givenUp: givenUp)
        arm()
    }

    func cancel(_ key: Key) {
        if entries.removeValue(forKey: key) != nil { arm() }
    }

    private func look() {
        let begin = now()
        for (key, entry) in entries where entry.due <= begin {
            let now = self.now()
            let isSettled = entry.attempt()
            if isSettled || now >= entry.end {
                // The attempt may have put another in its place.
                if entries[key]?.due == entry.due { entries[key] = nil }
                if !isSettled { entry.givenUp() }
            } else if entries[key]?.due == entry.due {
                let eager = max(Self.eager.pause, Microseconds(entries.count) * Self.pauseForEach)
                let longest = now - entry.begin < Self.eager.span ? eager : Self.longestPause
                let pause = min(entry.pause * 2, longest)
                entries[key]?.pause = pause
                entries[key]?.due = now + pause
            }
            if self.now() - begin >= Self.slice { break }
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

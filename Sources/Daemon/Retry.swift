import AppStateBus
import LifeCycle

/// Tries again what the kernel completes a little later without notification, and what may succeed later. Each pause is a
/// part of the time that was waited so far. One timer serves all keys.
final class Retry<Key: Hashable> {
    private struct Entry {
        let begin: Microseconds
        let end: Microseconds
        var due: Microseconds
        let attempt: () -> Bool
        let giveUp: () -> Void
        /// Distinguishes it from an entry that took its place.
        let serial: UInt64
    }

    /// A stop takes some ten microseconds on an idle machine.
    private static var shortestPause: Microseconds { 100 }
    /// A process in uninterruptible sleep may take forever.
    private static var longestPause: Microseconds { 1_000_000 }
    /// What is done is seen after a quarter more of the time that it took.
    private static var part: Microseconds { 4 }

    private let now: () -> Microseconds
    private var timer: Timer?
    private var entries: [Key: Entry] = [:]
    private var lastSerial: UInt64 = 0

    init(loop: EventLoop, now: @escaping () -> Microseconds) throws(BusFailure) {
        self.now = now
        timer = try loop.timer { [weak self] in self?.attemptDue() }
    }

    func contains(_ key: Key) -> Bool { entries[key] != nil }

    /// Schedules attempts until one returns true. Replaces what was scheduled for the key before.
    ///
    /// - Parameters:
    ///   - span: how long there are attempts.
    ///   - attempt: returns whether it is settled. It may schedule others, also for the same key.
    ///   - giveUp: called once `span` is over and the last attempt was in vain.
    func schedule(
        _ key: Key, for span: Microseconds = .max / 2, _ attempt: @escaping () -> Bool,
        giveUp: @escaping () -> Void = {}
    ) {
        let now = now()
        lastSerial += 1
        entries[key] = Entry(
            begin: now, end: now + span, due: now + Self.shortestPause, attempt: attempt, giveUp: giveUp,
            serial: lastSerial)
        arm()
    }

    func cancel(_ key: Key) {
        if entries.removeValue(forKey: key) != nil { arm() }
    }

    private func attemptDue() {
        let now = now()
        let due = entries.filter { $0.value.due <= now }
        for (key, entry) in due.sorted(by: { $0.value.serial < $1.value.serial })
        where entries[key]?.serial == entry.serial {
            attempt(key, entry)
        }
        arm()
    }

    private func attempt(_ key: Key, _ entry: Entry) {
        let isSettled = entry.attempt()
        // The attempt may have cancelled or replaced it.
        guard entries[key]?.serial == entry.serial else { return }
        let now = now()
        if isSettled || now >= entry.end {
            entries[key] = nil
            if !isSettled { entry.giveUp() }
        } else {
            let pause = (now - entry.begin) / Self.part
            entries[key]?.due = min(
                now + min(max(pause, Self.shortestPause), Self.longestPause), entry.end)
        }
    }

    private func arm() {
        if let due = entries.values.lazy.map(\.due).min() {
            timer?.arm(at: due)
        } else {
            timer?.disarm()
        }
    }
}

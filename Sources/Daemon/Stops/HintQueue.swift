import Glibc
import LifeCycle
import Linux

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

/// Hints about applications that wait for a check: at most one for each application, in fair order.
///
/// A user can send their own processes any number of signals. An application with hint after hint is
/// therefore checked less often, and the checks of one user's applications take a bounded share of the time.
/// Other users' actions affect neither.
struct HintQueue {
    enum Hint {
        case signal(StopTrace.Hint)
        /// A cgroup was frozen or thawed.
        case freeze

        /// Whether a check for this hint finds everything that a check for the earlier one would find. An
        /// earlier SIGSTOP outlasts another stop signal, because only SIGSTOP cannot be ignored.
        func overtakes(_ earlier: Hint) -> Bool {
            switch (self, earlier) {
            case (.signal, .freeze): true
            case (.freeze, _): false
            case (.signal(let hint), .signal(let earlier)):
                hint.signal == SIGCONT || hint.signal == SIGSTOP || earlier.signal != SIGSTOP
            }
        }
    }

    /// The number of looks at one application at once; after that there is one in each interval.
    static let looks = 512
    static let lookInterval: Microseconds = 5_000
    /// The share of the time that goes to one user's applications: a tenth.
    static let share: Microseconds = 10
    /// The time that one user's applications may take at once.
    static let allowance: Microseconds = 100_000

    struct Line {
        var waiting: [ApplicationNumber] = []
        var next = 0
        var pace = Pace(credit: HintQueue.allowance * HintQueue.share)

        var isEmpty: Bool { next == waiting.count }

        mutating func take() -> ApplicationNumber? {
            guard !isEmpty else { return nil }
            defer {
                next += 1
                if isEmpty {
                    (waiting, next) = ([], 0)
                } else if 2 * next > waiting.count {
                    // In a flood the queue may never be empty.
                    waiting.removeFirst(next)
                    next = 0
                }
            }
            return waiting[next]
        }
    }

    private var hints: [ApplicationNumber: Hint] = [:]
    private var users: [ApplicationNumber: UInt32] = [:]
    private var paces: [ApplicationNumber: Pace] = [:]
    private(set) var lines: [UInt32: Line] = [:]
    /// Users with a queue, in the order of their turns.
    private var turns: [UInt32] = []
    /// Applications that were checked too often to be in a queue now.
    private var later: [ApplicationNumber: Microseconds] = [:]

    var isEmpty: Bool { hints.isEmpty }

    /// Something has happened to an application of this user.
    mutating func add(
        _ hint: Hint, for number: ApplicationNumber, of user: UInt32, at now: Microseconds
    ) {
        if let older = hints[number] {
            if hint.overtakes(older) { hints[number] = hint }
            return
        }
        hints[number] = hint
        users[number] = user
        if let due = paces[number]?.due, due > now {
            later[number] = due
        } else {
            join(number, user)
        }
    }

    /// The application no longer exists.
    mutating func forget(_ number: ApplicationNumber) {
        hints[number] = nil
        users[number] = nil
        paces[number] = nil
        later[number] = nil
    }

    /// The next application to look at, and why; nil: none now.
    mutating func next(at now: Microseconds) -> (number: ApplicationNumber, user: UInt32, hint: Hint)? {
        for (number, due) in later where due <= now {
            later[number] = nil
            if let user = users[number] { join(number, user) }
        }
        var passed = 0
        while passed < turns.count {
            let user = turns.removeFirst()
            guard var line = lines[user] else { continue }
            if line.isEmpty && line.pace.isSettled(at: now) {
                lines[user] = nil
                continue
            }
            turns.append(user)
            passed += 1
            guard line.pace.due <= now else { continue }
            while let number = line.take() {
                // An application that was removed in the meantime no longer has a hint.
                guard let hint = hints.removeValue(forKey: number) else { continue }
                lines[user] = line
                users[number] = nil
                paces[number, default: Pace(credit: Self.lookInterval * Microseconds(Self.looks - 1))]
                    .spend(Self.lookInterval, at: now)
                return (number, user, hint)
            }
            lines[user] = line
        }
        return nil
    }

    /// Charges the time that a look at an application of this user has taken.
    mutating func spent(_ time: Microseconds, on user: UInt32, at now: Microseconds) {
        open(user)
        lines[user]?.pace.spend(time * Self.share, at: now)
    }

    /// Whether this user's applications have had their share for now.
    func isOverdrawn(_ user: UInt32, at now: Microseconds) -> Bool { (lines[user]?.pace.due ?? 0) > now }

    /// When `next` has something to return, as far as is known; nil: not before something is added.
    var nextDue: Microseconds? {
        let dues = lines.values.filter { !$0.isEmpty }.map(\.pace.due)
        return (dues + later.values).min()
    }

    private mutating func join(_ number: ApplicationNumber, _ user: UInt32) {
        open(user)
        lines[user]?.waiting.append(number)
    }

    private mutating func open(_ user: UInt32) {
        if lines[user] != nil { return }
        lines[user] = Line()
        turns.append(user)
    }
}

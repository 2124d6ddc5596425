import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Detects that a process waits for a file lock that a suspended application holds (§ 2).
///
/// With the kernel's help there is a hint for every wait that begins, while any application is watched. Without it,
/// /proc/locks is read again and again, between 50 ms and 1 s apart.
///
/// Each user's applications are examined together, on another thread, in rounds of their own. A user who makes others
/// wait all the time does not cost more than a tenth of a processor.
final class LockSensor {
    private let loop: EventLoop
    private let proc: Proc
    private let now: () -> Microseconds
    private let looks: Looks<LookSubject, LookFinding>
    private let handed: HandedOver
    private let found: (ApplicationNumber, String) -> Void
    private var watched: [ApplicationNumber: Watched] = [:]
    private var rounds: [UInt32: Round] = [:]
    private var lastToken: UInt64 = 0
    private var trace: LockTrace?
    /// The kernel does not provide hints. This is tried only once.
    private var isRefused = false
    private var sources: [Source] = []
    private var timer: Timer?
    private var pause = LockSensor.shortestPause

    private struct Watched {
        let user: UInt32
        let subject: LockRound.Subject
    }

    /// The looks at one user's applications.
    private struct Round {
        var isUnderWay = false
        /// A process began to wait since the last look began.
        var isWanted = false
        /// The next look does not begin before this time.
        var notBefore: Microseconds = 0
        /// The application with which the next look begins.
        var first: ApplicationNumber?
    }

    private static let shortestPause: Microseconds = 50_000
    private static let longestPause: Microseconds = 1_000_000
    /// The pause between two looks, however many hints come: there are hints for the waits of all processes.
    private static let leastPause: Microseconds = 5_000
    /// The pause between two looks at one user's applications, as a multiple of what the last one took.
    private static let restFactor: Microseconds = 10

    /// - Parameter found: gets a description of the wait; from then on the application is no longer watched.
    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds,
        looks: Looks<LookSubject, LookFinding>, handed: HandedOver,
        found: @escaping (ApplicationNumber, String) -> Void
    ) throws(BusFailure) {
        self.handed = handed
        self.loop = loop
        self.proc = proc
        self.now = now
        self.looks = looks
        self.found = found
        timer = try loop.timer { [weak self] in self?.come() }
    }

    /// Watches a stopped application.
    func watch(_ number: ApplicationNumber, of user: UInt32, _ pids: Set<Int32>) {
        if watched.isEmpty { begin() }
        lastToken += 1
        watched[number] = Watched(
            user: user, subject: LockRound.Subject(number: number, token: lastToken, pids: pids))
        pause = Self.shortestPause
        // Processes may have begun to wait before the trace was open.
        rounds[user, default: Round()].isWanted = true
        look()
    }

    func unwatch(_ number: ApplicationNumber) {
        guard watched.removeValue(forKey: number) != nil, watched.isEmpty else { return }
        // While the trace is open, each lock on the machine costs its caller something. Closing it would block for 100
        // ms.
        try? trace?.pause()
        timer?.disarm()
    }

    /// The trace does not cover a CPU that has come online since, so it is opened again.
    func renew() {
        guard trace != nil else { return }
        sources = []
        trace = nil
        if watched.isEmpty { return }
        begin()
        pause = Self.shortestPause
        look()
    }

    private func begin() {
        if let trace {
            do {
                try trace.resume()
                return
            } catch {
                sources = []
                self.trace = nil
            }
        }
        guard !isRefused else { return }
        do {
            let trace = try LockTrace.open(handed: handed)
            sources = try trace.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.hinted() }
            }
            self.trace = trace
        } catch {
            isRefused = true
        }
    }

    /// The hints stay in the ring buffers until the next look: full buffers cause no wake-ups, no matter how
    /// many hints arrive.
    private func hinted() {
        guard !watched.isEmpty else { return drain() }
        wantAll()
        look()
    }

    private func drain() {
        guard let trace else { return }
        for descriptor in trace.descriptors { _ = trace.drain(descriptor) }
    }

    private func wantAll() {
        for user in rounds.keys { rounds[user]?.isWanted = true }
    }

    private func come() {
        if trace == nil { wantAll() }
        look()
    }

    /// Begins the looks that are wanted and may begin, and sets the timer for the others.
    private func look() {
        let now = now()
        let ready = rounds.filter { $0.value.isWanted && !$0.value.isUnderWay && $0.value.notBefore <= now }
        // Before the look: a process that begins to wait after it causes a new hint. The other users' rounds are
        // already wanted.
        if !ready.isEmpty, !watched.isEmpty { drain() }
        for user in ready.keys.sorted() where !watched.isEmpty { begin(user) }
        arm()
    }

    private func arm() {
        let now = now()
        var next = Microseconds.max
        for round in rounds.values where !round.isUnderWay && !watched.isEmpty {
            if round.isWanted {
                next = min(next, round.notBefore)
            } else if trace == nil {
                // Without hints, there is no notification of a new wait.
                next = min(next, max(now + pause, round.notBefore))
            }
        }
        if next < .max { timer?.arm(at: next) } else { timer?.disarm() }
    }

    private func begin(_ user: UInt32) {
        rounds[user]?.isWanted = false
        rounds[user]?.isUnderWay = true
        looks.ask(.locks(user: user), of: user, isUrgent: true, within: .max) { [weak self] in
            self?.round(of: user)
        } answer: { [weak self] answer in
            self?.take(answer, of: user)
        }
    }

    /// nil: none of the user's applications is watched any longer.
    private func round(of user: UInt32) -> (@Sendable () -> LookFinding)? {
        let numbers = watched.filter { $0.value.user == user }.keys.sorted()
        guard !numbers.isEmpty else { return nil }
        let first = rounds[user]?.first.flatMap { first in numbers.firstIndex { $0 >= first } } ?? 0
        let subjects = (numbers[first...] + numbers[..<first]).compactMap { watched[$0]?.subject }
        let proc = proc
        return { .locks(LockRound(subjects, proc: proc)) }
    }

    private func take(_ answer: Looks<LookSubject, LookFinding>.Answer, of user: UInt32) {
        rounds[user]?.isUnderWay = false
        switch answer {
        case .success(.locks(let round)):
            rounds[user]?.first = round.rest
            if round.rest != nil { rounds[user]?.isWanted = true }
            let rest = round.microseconds * Self.restFactor * Microseconds(max(rounds.count, 1))
            rounds[user]?.notBefore = now() + max(Self.leastPause, rest)
            for entry in round.found where watched[entry.number]?.subject.token == entry.token {
                unwatch(entry.number)
                found(entry.number, entry.why)
            }
            pause = min(pause * 2, Self.longestPause)
        case .failure(.hasEnded):
            rounds[user] = nil
        case .success, .failure:
            // For example, because there is no thread.
            rounds[user]?.isWanted = true
            rounds[user]?.notBefore = now() + Self.longestPause
        }
        if !watched.values.contains(where: { $0.user == user }) { rounds[user] = nil }
        look()
    }
}

import AppStateBus
import LifeCycle
import Systemd

/// The questions to polkit. At most 4 for each user and 32 in all are pending (dbus-api), and each for a
/// limited time.
final class Questions {
    private final class Pending {
        let number: UInt64
        let question: Polkit.Question
        let until: Microseconds
        let answered: (Polkit.Verdict) -> Void
        /// The call to polkit; nil while it waits for a place.
        var slot: Slot?

        init(
            _ number: UInt64, _ question: Polkit.Question, until: Microseconds,
            _ answered: @escaping (Polkit.Verdict) -> Void
        ) {
            self.number = number
            self.question = question
            self.until = until
            self.answered = answered
        }

        var id: String { "appstated-\(number)" }
        var user: UInt32 { question.connection.user }
    }

    private static let mostOfUser = 4
    private static let most = 32
    /// polkit's rules may run programs, and callers that use libdbus wait for 25 s.
    private static let patience: Microseconds = 10_000_000
    /// The user may have to type a password.
    private static let patienceWithPeople: Microseconds = 300_000_000

    private let polkit: Polkit
    private let journal: Journal
    private let now: () -> Microseconds
    private var timer: Timer?
    private var last: UInt64 = 0
    /// In the order in which they were asked.
    private var pending: [Pending] = []

    init(loop: EventLoop, polkit: Polkit, journal: Journal, now: @escaping () -> Microseconds)
        throws(BusFailure)
    {
        self.polkit = polkit
        self.journal = journal
        self.now = now
        timer = try loop.timer { [weak self] in self?.expire() }
    }

    /// Whether one more question for this user would be asked at once.
    func hasPlace(for user: UInt32) -> Bool {
        let asked = pending.filter { $0.slot != nil }
        return asked.count < Self.most && asked.count { $0.user == user } < Self.mostOfUser
    }

    /// Asks now, or as soon as there is a place.
    ///
    /// - Parameter answered: called once, unless the connection leaves first; never from within this method.
    func ask(_ question: Polkit.Question, answered: @escaping (Polkit.Verdict) -> Void) {
        ask([(question, answered)])
    }

    /// The same for several questions, each with what is called with its answer.
    func ask(_ questions: [(Polkit.Question, (Polkit.Verdict) -> Void)]) {
        for (question, answered) in questions {
            last += 1
            let patience = question.isInteractive ? Self.patienceWithPeople : Self.patience
            pending.append(Pending(last, question, until: now() + patience, answered))
        }
        fill()
    }

    /// Cancels the questions for a connection that has left.
    func cancel(of connection: ConnectionName) {
        let gone = pending.filter { $0.question.connection.name == connection }
        if gone.isEmpty { return }
        for entry in gone { takeBack(entry) }
        fill()
    }

    private func takeBack(_ entry: Pending) {
        pending.removeAll { $0 === entry }
        if entry.slot != nil { polkit.cancel(id: entry.id) }
        entry.slot = nil
    }

    /// Many may wait: they are counted once.
    private func fill() {
        let asked = pending.filter { $0.slot != nil }
        var all = asked.count
        var ofUser = Dictionary(asked.map { ($0.user, 1) }, uniquingKeysWith: +)
        for entry in pending where entry.slot == nil {
            if all >= Self.most { break }
            if ofUser[entry.user, default: 0] >= Self.mostOfUser { continue }
            // A question that cannot be asked stays, and is answered when its time is up: `ask` never calls back from
            // within.
            journal.attempt(.warning, "cannot ask polkit") {
                entry.slot = try polkit.check(entry.question, id: entry.id) {
                    [weak self, weak entry] verdict in
                    guard let self, let entry else { return }
                    pending.removeAll { $0 === entry }
                    entry.slot = nil
                    entry.answered(verdict)
                    fill()
                }
            }
            guard entry.slot != nil else { continue }
            all += 1
            ofUser[entry.user, default: 0] += 1
        }
        arm()
    }

    private func expire() {
        let time = now()
        let late = pending.filter { $0.until <= time }
        for entry in late { takeBack(entry) }
        for entry in late {
            journal.log(
                .warning,
                "no answer from polkit in time: \(entry.question.action.rawValue) for \(entry.question.connection.name)"
            )
            entry.answered(.unanswered)
        }
        fill()
    }

    private func arm() {
        if let next = pending.map(\.until).min() { timer?.arm(at: next) } else { timer?.disarm() }
    }
}

import AppStateBus
import LifeCycle
import Linux

/// Examines objects that users can create without limit (processes, open files, locks, sockets) on another
/// thread. One such examination is called a look.
///
/// There is one look at a time. The users whose processes are examined take turns, so that one user's
/// expensive looks do not keep others waiting, and the processor time of a look is charged to its user's
/// share. Each subject has at most one look that has not begun; callers that request it again share its
/// answer.
///
/// A process can make a look hang: to read some files of /proc, the kernel waits until an execve(2) of the process is
/// complete, and that may wait for a file system that a user serves. A look that takes too long keeps only its own
/// user waiting: the other users' looks go on with another thread.
final class Looks<Subject: Hashable & Sendable, Finding: Sendable> {
    /// Why there is no result.
    struct NotLooked: Error, Equatable, CustomStringConvertible {
        let description: String

        static var tooLate: NotLooked { NotLooked(description: "could not be examined in time") }
        static var hasEnded: NotLooked { NotLooked(description: "has ended") }
        static var isClosed: NotLooked { NotLooked(description: "could not be examined: the daemon ends") }
    }

    typealias Answer = Result<Finding, NotLooked>
    /// Runs on the other thread.
    typealias Job = @Sendable () -> Finding

    private struct Asker {
        let until: Microseconds
        let answer: (Answer) -> Void
    }

    private final class Look {
        let subject: Subject
        let user: UInt32
        var makeJob: () -> Job?
        var askers: [Asker] = []

        init(_ subject: Subject, _ user: UInt32, _ makeJob: @escaping () -> Job?) {
            self.subject = subject
            self.user = user
            self.makeJob = makeJob
        }
    }

    /// A look that takes too long, with its thread.
    private final class Hanging {
        let look: Look
        let worker: Worker<Subject, Finding>
        let source: Source?

        init(_ look: Look, _ worker: Worker<Subject, Finding>, _ source: Source?) {
            (self.look, self.worker, self.source) = (look, worker, source)
        }
    }

    private let loop: EventLoop
    private let name: String
    private let patience: Microseconds
    private let now: () -> Microseconds
    private let share: WorkShare
    private var worker: Worker<Subject, Finding>
    private var source: Source?
    /// Fires when the look that is under way takes too long.
    private var patienceTimer: Timer?
    /// At most one for each user.
    private var hanging: [UInt32: Hanging] = [:]
    private var timer: Timer?
    private var timerIsSetFor: Microseconds?
    /// Fires when a user has a share left again.
    private var shareTimer: Timer?
    private var waiting: [Subject: Look] = [:]
    /// Looks that wait, in the order of their users' turns; no user's list is empty.
    private var turns: [(user: UInt32, looks: [Look])] = []
    private var underWay: Look?
    private var isBeginning = false
    private var isClosed = false

    /// - Parameter patience: after this many microseconds, a look no longer keeps other users' looks waiting.
    init(
        loop: EventLoop, name: String, patience: Microseconds = 2_000_000, now: @escaping () -> Microseconds,
        share: WorkShare
    ) throws {
        self.loop = loop
        self.name = name
        self.patience = patience
        self.now = now
        self.share = share
        worker = try Self.worker(name)
        source = try loop.watch(worker.descriptor) { [weak self] _ in self?.takeResults() }
        patienceTimer = try loop.timer { [weak self] in self?.leaveHanging() }
        timer = try loop.timer { [weak self] in self?.expire() }
        shareTimer = try loop.timer { [weak self] in self?.begin() }
    }

    /// The thread ends soon: a daemon with nothing to do has one thread.
    private static func worker(_ name: String) throws(KernelFailure) -> Worker<Subject, Finding> {
        try Worker(name: name, limit: 1, idleMilliseconds: 1_000)
    }

    /// The most looks that may hang.
    private static var mostHanging: Int { 16 }

    /// So many looks hang that the next ones must not.
    var isCrowded: Bool { hanging.count >= Self.mostHanging / 2 }

    /// Requests a look. `answer` is called once, later or at once.
    ///
    /// - Parameters:
    ///   - user: whose processes are examined.
    ///   - isUrgent: before the user's other looks.
    ///   - span: after this many microseconds the answer is that it was too late; `.max`: never.
    ///   - makeJob: called when the look begins; nil: there is nothing left to examine.
    func ask(
        _ subject: Subject, of user: UInt32, isUrgent: Bool = false, within span: Microseconds,
        makeJob: @escaping () -> Job?, answer: @escaping (Answer) -> Void
    ) {
        if isClosed { return answer(.failure(.isClosed)) }
        let (sum, overflow) = now().addingReportingOverflow(span)
        let until = overflow ? .max : sum
        let isNew = waiting[subject] == nil
        let look = waiting[subject] ?? Look(subject, user, makeJob)
        // The last caller knows best what must be examined.
        look.makeJob = makeJob
        look.askers.append(Asker(until: until, answer: answer))
        waiting[subject] = look
        let turn: Int
        if let index = turns.firstIndex(where: { $0.user == user }) {
            turn = index
        } else {
            turns.append((user, []))
            turn = turns.count - 1
        }
        if isUrgent {
            if !isNew { turns[turn].looks.removeAll { $0 === look } }
            turns[turn].looks.insert(look, at: 0)
        } else if isNew {
            turns[turn].looks.append(look)
        }
        if until < timerIsSetFor ?? .max { arm(at: until) }
        begin()
    }

    /// Answers all callers that there will be no more looks.
    func close() {
        isClosed = true
        let looks = turns.flatMap(\.looks) + begun
        (turns, waiting, underWay, hanging) = ([], [:], nil, [:])
        timer?.disarm()
        shareTimer?.disarm()
        patienceTimer?.disarm()
        for look in looks { answer(look, .failure(.isClosed)) }
    }

    // MARK: One after the other

    private func begin() {
        if isBeginning { return }
        isBeginning = true
        while underWay == nil, let look = next() {
            guard let job = look.makeJob() else {
                answer(look, .failure(.hasEnded))
                continue
            }
            switch worker.submit(look.subject, job) {
            case .accepted:
                underWay = look
                patienceTimer?.arm(at: now() + patience)
            case .failed(let failure):
                answer(look, .failure(NotLooked(description: "could not be examined: \(failure)")))
            case .full:
                preconditionFailure("two looks at a time")
            }
        }
        isBeginning = false
        if begun.isEmpty, turns.isEmpty {
            timerIsSetFor = nil
            timer?.disarm()
        }
    }

    /// The looks that have begun and are not answered.
    private var begun: [Look] { hanging.values.map(\.look) + (underWay.map { [$0] } ?? []) }

    private func next() -> Look? {
        let index: Int
        // A user whose look hangs must wait.
        let ready = turns.indices.filter { hanging[turns[$0].user] == nil }
        switch share.turn(in: ready, at: now(), of: { turns[$0].user }) {
        case .now(let found): index = ready[found]
        case .later(let due):
            shareTimer?.arm(at: due)
            return nil
        case .nobody: return nil
        }
        var turn = turns.remove(at: index)
        let look = turn.looks.removeFirst()
        if !turn.looks.isEmpty { turns.append(turn) }
        waiting[look.subject] = nil
        return look
    }

    private func takeResults() {
        defer { takeLate() }
        for finished in worker.takeResults() {
            guard let look = underWay else { continue }
            underWay = nil
            patienceTimer?.disarm()
            share.charge(finished.processorTime, to: look.user, at: now())
            begin()
            answer(look, .success(finished.value))
        }
    }

    /// The look that is under way no longer keeps others waiting: another thread takes its place.
    private func leaveHanging() {
        guard let look = underWay else { return }
        guard hanging[look.user] == nil, hanging.count < Self.mostHanging,
            let successor = try? Self.worker(name),
            let source = try? loop.watch(successor.descriptor, { [weak self] _ in self?.takeResults() })
        else {
            patienceTimer?.arm(at: now() + patience)
            return
        }
        hanging[look.user] = Hanging(look, worker, self.source)
        (worker, self.source, underWay) = (successor, source, nil)
        begin()
    }

    /// Takes the results of looks that hung.
    private func takeLate() {
        for (user, left) in hanging {
            guard let finished = left.worker.takeResults().first else { continue }
            hanging[user] = nil
            share.charge(finished.processorTime, to: user, at: now())
            begin()
            answer(left.look, .success(finished.value))
        }
    }

    private func answer(_ look: Look, _ answer: Answer) {
        let askers = look.askers
        look.askers = []
        for asker in askers { asker.answer(answer) }
    }

    // MARK: Too late

    private func expire() {
        timerIsSetFor = nil
        let now = now()
        var late: [Asker] = []
        var next = Microseconds.max
        for look in turns.flatMap(\.looks) + begun {
            late += look.askers.filter { $0.until <= now }
            look.askers.removeAll { $0.until <= now }
            for asker in look.askers { next = min(next, asker.until) }
        }
        // A look that nobody waits for is not kept: it may retain a measurement that is under way.
        for index in turns.indices.reversed() {
            for look in turns[index].looks where look.askers.isEmpty { waiting[look.subject] = nil }
            turns[index].looks.removeAll(where: \.askers.isEmpty)
            if turns[index].looks.isEmpty { turns.remove(at: index) }
        }
        if next < .max { arm(at: next) }
        for asker in late { asker.answer(.failure(.tooLate)) }
    }

    private func arm(at time: Microseconds) {
        timerIsSetFor = time
        timer?.arm(at: time)
    }
}

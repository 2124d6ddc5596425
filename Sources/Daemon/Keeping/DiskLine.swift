import AppStateBus
import LifeCycle

/// Work that waits for the disk. Users take turns, and each user's work is done in the order in which it came. A user
/// who has used up the share of the daemon's time waits.
struct DiskLine {
    enum Work {
        /// Writes the record of the application, or removes it if there is nothing to record.
        case record
        case save(SavedContent, PendingCall)
        /// `answered` is called once the answer is sent.
        case load(PendingCall, answered: () -> Void)
        case open(PendingCall, answered: () -> Void)
        case drop
        /// Drops the saved state, and then does what `record` does.
        case forget(PendingCall)

        /// The call that waits for the work.
        var call: PendingCall? {
            switch self {
            case .save(_, let call), .load(let call, _), .open(let call, _), .forget(let call): call
            case .record, .drop: nil
            }
        }

        /// To be called once the answer is sent.
        var answered: (() -> Void)? {
            switch self {
            case .load(_, let answered), .open(_, let answered): answered
            case .record, .save, .drop, .forget: nil
            }
        }

        /// The bytes of a client's that it writes.
        var writtenBytes: Int {
            if case .save(let content, _) = self { Int(clamping: content.size) } else { 0 }
        }

        fileprivate var isRecord: Bool { if case .record = self { true } else { false } }
        fileprivate var isDrop: Bool {
            switch self {
            case .drop, .forget: true
            case .record, .save, .load, .open: false
            }
        }
        fileprivate var isSave: Bool { if case .save = self { true } else { false } }
    }

    struct Job {
        let kept: KeptID
        let work: Work
    }

    private var queues: [UInt32: [Job]] = [:]
    /// Users with waiting work: the first has the next turn.
    private var users: [UInt32] = []
    /// Applications whose record waits. A record describes the moment in which it is written.
    private var records: Set<KeptID> = []
    /// The job that is under way.
    private(set) var current: Job?

    /// All jobs of one user, the one under way first.
    func jobs(of user: UInt32) -> [Job] {
        let own = current.flatMap { $0.kept.user == user ? $0 : nil }
        return [own].compactMap { $0 } + (queues[user] ?? [])
    }

    /// Whether the removal of the state that is saved under an id is still waiting.
    func isDropWaiting(for kept: KeptID) -> Bool {
        queues[kept.user]?.contains { $0.kept == kept && $0.work.isDrop } == true
    }

    /// Whether state that is to be saved under an id is still waiting. It replaces what was saved before.
    func isSaveWaiting(for kept: KeptID) -> Bool {
        queues[kept.user]?.contains { $0.kept == kept && $0.work.isSave } == true
    }

    /// Whether a record of an application is still waiting to be written.
    func isRecordWaiting(for kept: KeptID) -> Bool { records.contains(kept) }

    /// Adds a job, unless a waiting job would do the same.
    mutating func add(_ job: Job) {
        let user = job.kept.user
        if job.work.isRecord, !records.insert(job.kept).inserted { return }
        if case .drop = job.work,
            queues[user]?.last(where: { $0.kept == job.kept && !$0.work.isRecord })?.work.isDrop == true
        {
            return
        }
        if queues[user] == nil { users.append(user) }
        queues[user, default: []].append(job)
    }

    /// The next job, of the first user who has a share left; it is under way from now on. Nobody's turn comes while a
    /// job is under way.
    ///
    /// - Parameter share: nil: no user's work waits for a share.
    mutating func begin(within share: WorkShare?, at now: Microseconds) -> WorkShare.Place<Job> {
        guard current == nil, !users.isEmpty else { return .nobody }
        switch share?.turn(in: users, at: now, of: { $0 }) ?? .now(users.startIndex) {
        case .now(let index): return take(users.remove(at: index))
        case .later(let due): return .later(due)
        case .nobody: return .nobody
        }
    }

    /// Takes the first job of a user, who comes behind all others now.
    private mutating func take(_ user: UInt32) -> WorkShare.Place<Job> {
        guard let job = queues[user]?.removeFirst() else { return .nobody }
        if queues[user]?.isEmpty == true {
            queues[user] = nil
        } else {
            users.append(user)
        }
        if job.work.isRecord { records.remove(job.kept) }
        current = job
        return .now(job)
    }

    /// Ends the job that was under way and returns it.
    mutating func end() -> Job? {
        defer { current = nil }
        return current
    }
}

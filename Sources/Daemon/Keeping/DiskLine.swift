import AppStateBus

/// What waits for the disk: for one user after the other, and in the order in which it came for each.
struct DiskLine {
    enum Work {
        /// Writes down what is known of it, or that nothing is.
        case record
        case save(SavedContent, PendingCall)
        /// `answered` is called once the answer is sent.
        case load(PendingCall, answered: () -> Void)
        case open(PendingCall)
        case drop

        /// Whoever waits for it.
        var call: PendingCall? {
            switch self {
            case .save(_, let call), .load(let call, _), .open(let call): call
            case .record, .drop: nil
            }
        }

        fileprivate var isRecord: Bool { if case .record = self { true } else { false } }
        fileprivate var isDrop: Bool { if case .drop = self { true } else { false } }
    }

    struct Job {
        let kept: KeptID
        let work: Work
    }

    private var queues: [UInt32: [Job]] = [:]
    /// Users who have something waiting: the first has the next turn.
    private var users: [UInt32] = []
    /// Those whose record waits: it is of the moment in which it is written.
    private var records: Set<KeptID> = []
    /// The job that is being done.
    private(set) var current: Job?

    /// All of one user's, the one that is being done first.
    func jobs(of user: UInt32) -> [Job] {
        let own = current.flatMap { $0.kept.user == user ? $0 : nil }
        return [own].compactMap { $0 } + (queues[user] ?? [])
    }

    /// Whether what is saved under an id is still to be dropped.
    func isDropWaiting(for kept: KeptID) -> Bool {
        queues[kept.user]?.contains { $0.kept == kept && $0.work.isDrop } == true
    }

    /// Adds a job, unless it would do what one that waits does.
    mutating func add(_ job: Job) {
        let user = job.kept.user
        if job.work.isRecord, !records.insert(job.kept).inserted { return }
        if job.work.isDrop,
            queues[user]?.last(where: { $0.kept == job.kept && !$0.work.isRecord })?.work.isDrop == true
        {
            return
        }
        if queues[user] == nil { users.append(user) }
        queues[user, default: []].append(job)
    }

    /// The next job, which is being done from now on; nil: one is being done already, or none waits.
    mutating func begin() -> Job? {
        guard current == nil, let user = users.first, let job = queues[user]?.first else { return nil }
        users.removeFirst()
        queues[user]?.removeFirst()
        if queues[user]?.isEmpty == true {
            queues[user] = nil
        } else {
            users.append(user)
        }
        if job.work.isRecord { records.remove(job.kept) }
        current = job
        return job
    }

    /// The job that was being done.
    mutating func end() -> Job? {
        defer { current = nil }
        return current
    }
}

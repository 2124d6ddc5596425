import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Keeps what outlives an application, the daemon and the machine's boot: how it ended, and what it saved (lifecycle.md
/// § 7). What is known stands in memory; the disk is the worker's, which does one thing at a time, for one user after
/// the other. It is a worker of its own: whoever waits for memory must not wait for a slow disk.
final class Keeper {
    /// What a client has given to be saved.
    enum Content: Sendable {
        case bytes([UInt8])
        case memory(SharedMemory)

        var size: UInt64 {
            switch self {
            case .bytes(let bytes): UInt64(bytes.count)
            case .memory(let shared): shared.memory.size
            }
        }

        /// Of our own memory that it takes.
        fileprivate var heldBytes: Int {
            if case .bytes(let bytes) = self { bytes.count } else { 0 }
        }
    }

    /// A memory file that the worker reads.
    final class SharedMemory: Sendable {
        let memory: SealedMemory
        init(_ memory: consuming SealedMemory) { self.memory = memory }
    }

    private final class SharedFile: Sendable {
        let descriptor: Descriptor
        init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }
    }

    private enum Work {
        /// Writes down what is known of it, or that nothing is.
        case record
        case save(Content, PendingCall)
        case load(PendingCall)
        case open(PendingCall)
        case drop
    }

    private struct Job {
        let kept: KeptID
        let work: Work
    }

    private enum Outcome: Sendable {
        case recorded(KernelFailure?)
        /// nil: nothing is saved.
        case saved(size: UInt64?, KernelFailure?)
        case bytes([UInt8])
        case file(SharedFile?)
        /// Too large for a message.
        case large(UInt64)
        case failed(KernelFailure)
    }

    /// dbus-api: what `SaveState` and `LoadState` carry.
    static let mostBytesInMessage = 1 << 20
    /// Application ids of one user of which anything is kept. A desktop has a few hundred desktop entries.
    private static let mostPerUser = 512
    /// Calls of one user that wait for the disk, ...
    private static let mostWaiting = 32
    /// ... and bytes that they have us hold.
    private static let mostHeldBytes = 4 << 20
    /// How long an orderly end waits for a disk. In milliseconds.
    private static let patience: Int32 = 5_000

    private let files: KeptFiles
    private let boot: String
    private let journal: Journal
    private var applications: [KeptID: KeptApplication] = [:]
    private var countByUser: [UInt32: Int] = [:]
    private let worker: Worker<UInt32, Outcome>
    private var source: Source?
    /// What waits, for each user.
    private var queues: [UInt32: [Job]] = [:]
    /// Users who have something waiting: the first has the next turn.
    private var line: [UInt32] = []
    private var current: Job?
    private var hasFailed = false

    /// nil where there is no directory: then nothing is kept. Reads what an earlier daemon has kept.
    init?(files: KeptFiles?, boot: String, loop: EventLoop, journal: Journal) throws {
        guard let files else { return nil }
        self.files = files
        self.boot = boot
        self.journal = journal
        worker = try Worker(name: "appstated-disk", limit: 1)
        applications = files.load(boot: boot, now: Clock.realMicroseconds) {
            journal.log(.warning, "what is kept of an application is not used: \($0)")
        }
        for kept in applications.keys { countByUser[kept.user, default: 0] += 1 }
        source = try loop.watch(worker.descriptor) { [weak self] _ in self?.takeResult() }
    }

    // MARK: Runs

    /// What a launch of this id is told of the run before, in the place of what the client says of it.
    func launchOptions(of kept: KeptID, given: [(String, Variant)]) -> [(String, Variant)] {
        let known = applications[kept]
        var own: [LaunchOption: Variant] = [.firstLaunch: .bool(known?.hasRun != true)]
        if hasState(kept) { own[.restorable] = .bool(true) }
        if let exit = known?.exits.last {
            own[.exitReason] = .string(exit.reason.rawValue)
            if let state = exit.state { own[.previousState] = .string(state.rawValue) }
            if let status = exit.status { own[.exitStatus] = .int32(status) }
        }
        let others = given.filter { LaunchOption(rawValue: $0.0) == nil }
        return (others + own.map { ($0.key.rawValue, $0.value) }).sorted { $0.0 < $1.0 }
    }

    /// Whether there is something to load once all that waits is done.
    func hasState(_ kept: KeptID) -> Bool { (sizes(of: kept.user)[kept] ?? 0) > 0 }

    /// An application with this id is registered.
    ///
    /// - Returns: false where nothing is kept of it: its user has too many.
    func begin(_ kept: KeptID) -> Bool {
        guard makeRoom(for: kept) else { return false }
        applications[kept]?.runs += 1
        applications[kept]?.usedAt = Clock.realMicroseconds
        if applications[kept]?.runs == 1, applications[kept]?.wasRunning != true { write(kept) }
        applications[kept]?.wasRunning = false
        return true
    }

    /// One that `begin` has taken has ended.
    func end(_ kept: KeptID, _ ending: Ending) {
        guard makeRoom(for: kept) else { return }
        applications[kept]?.add(
            KeptApplication.Exit(
                time: Clock.realMicroseconds, reason: ending.reason, state: ending.state,
                status: ending.status))
        applications[kept]?.wasRunning = false
        write(kept)
        if ending.dropsSavedState { enqueue(Job(kept: kept, work: .drop)) }
    }

    /// One that `begin` has taken is no application any more.
    func leave(_ kept: KeptID) {
        guard let runs = applications[kept]?.runs, runs > 0 else { return }
        applications[kept]?.runs = runs - 1
        guard runs == 1 else { return }
        applications[kept]?.hasRun = true
        write(kept)
    }

    /// All that still run are registered again: what ran when the daemon before was killed has ended meanwhile.
    func settle() {
        let now = Clock.realMicroseconds
        for (kept, known) in applications where known.wasRunning && known.runs == 0 {
            applications[kept]?.wasRunning = false
            applications[kept]?.add(
                KeptApplication.Exit(time: now, reason: .unknown, state: nil, status: nil))
            write(kept)
        }
    }

    /// The ends of an application, the last first.
    func history(of kept: KeptID) -> [KeptApplication.Exit] { applications[kept]?.exits.reversed() ?? [] }

    /// There is an entry for it, if need be in the place of the one that was used longest ago.
    private func makeRoom(for kept: KeptID) -> Bool {
        if applications[kept] != nil { return true }
        if countByUser[kept.user, default: 0] >= Self.mostPerUser {
            let idle = applications.filter { $0.key.user == kept.user && $0.value.isIdle && !isBusy($0.key) }
            guard let oldest = idle.min(by: { $0.value.usedAt < $1.value.usedAt })?.key else { return false }
            applications[oldest] = nil
            countByUser[kept.user, default: 0] -= 1
            write(oldest)
        }
        applications[kept] = KeptApplication(usedAt: Clock.realMicroseconds)
        countByUser[kept.user, default: 0] += 1
        return true
    }

    private func isBusy(_ kept: KeptID) -> Bool {
        current?.kept == kept || queues[kept.user]?.contains { $0.kept == kept } == true
    }

    // MARK: Saved state

    /// Before anything is taken from a client. Throws where its user would have more saved, or waiting, than one may.
    ///
    /// - Parameter limit: bytes that all of a user's applications may have saved.
    func checkRoom(for content: Content, of kept: KeptID, limit: UInt64) throws(MethodError) {
        try checkQueue(of: kept.user, content.heldBytes)
        guard makeRoom(for: kept) else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostPerUser) applications of user \(kept.user) would have state saved")
        }
        var sizes = sizes(of: kept.user)
        sizes[kept] = content.size
        let sum = sizes.values.reduce(UInt64(0)) { $0.addingReportingOverflow($1).partialValue }
        guard content.size <= limit, sum <= limit else {
            throw MethodError(
                .limitsExceeded,
                "All applications of user \(kept.user) would have \(sum) bytes saved; "
                    + "SavedStatePerUser= allows \(limit)")
        }
    }

    /// One more call that waits for the disk, with so many bytes.
    func checkQueue(of user: UInt32, _ bytes: Int = 0) throws(MethodError) {
        let waiting = jobs(of: user).compactMap { job -> Int? in
            switch job.work {
            case .save(let content, _): content.heldBytes
            case .load, .open: 0
            case .record, .drop: nil
            }
        }
        guard waiting.count < Self.mostWaiting, waiting.reduce(bytes, +) <= Self.mostHeldBytes else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostWaiting) calls of user \(user), or \(Self.mostHeldBytes) bytes, wait for the disk"
            )
        }
    }

    /// Saves what `checkRoom` has let pass; of nothing, nothing stays saved. Answers once it is on the disk.
    func save(_ content: Content, of kept: KeptID, _ call: PendingCall) {
        enqueue(Job(kept: kept, work: .save(content, call)))
    }

    /// Answers with what was saved last, which is nothing where nothing is.
    func load(_ kept: KeptID, _ call: PendingCall, asFile: Bool) {
        enqueue(Job(kept: kept, work: asFile ? .open(call) : .load(call)))
    }

    /// What each of a user's applications has saved once all that waits is done.
    private func sizes(of user: UInt32) -> [KeptID: UInt64] {
        var sizes: [KeptID: UInt64] = [:]
        for (kept, known) in applications where kept.user == user { sizes[kept] = known.stateSize }
        for job in jobs(of: user) {
            switch job.work {
            case .save(let content, _): sizes[job.kept] = content.size
            case .drop: sizes[job.kept] = nil
            case .record, .load, .open: break
            }
        }
        return sizes
    }

    // MARK: The disk

    private func jobs(of user: UInt32) -> [Job] {
        let own = current.flatMap { $0.kept.user == user ? $0 : nil }
        return [own].compactMap { $0 } + (queues[user] ?? [])
    }

    /// Has what is known of it written down, once.
    private func write(_ kept: KeptID) {
        let isQueued = queues[kept.user]?.contains { job in
            if case .record = job.work { job.kept == kept } else { false }
        }
        if isQueued != true { enqueue(Job(kept: kept, work: .record)) }
    }

    private func enqueue(_ job: Job) {
        let user = job.kept.user
        if queues[user] == nil { line.append(user) }
        queues[user, default: []].append(job)
        doNext()
    }

    private func takeNext() -> Job? {
        guard let user = line.first, let job = queues[user]?.first else { return nil }
        line.removeFirst()
        queues[user]?.removeFirst()
        if queues[user]?.isEmpty == true {
            queues[user] = nil
        } else {
            line.append(user)
        }
        return job
    }

    private func doNext() {
        guard current == nil, let job = takeNext() else { return }
        current = job
        switch worker.submit(job.kept.user, self.job(for: job)) {
        case .accepted: break
        case .full: preconditionFailure("the disk's worker does one job at a time")
        case .failed(let failure): finish(job, .failed(failure))
        }
    }

    private func job(for job: Job) -> @Sendable () -> Outcome {
        let (files, kept) = (files, job.kept)
        switch job.work {
        case .record:
            let bytes = applications[kept].map {
                RecordFile.bytes($0.record(of: kept.application, boot: boot))
            }
            return { Self.write(bytes, of: kept, files) }
        case .save(let content, _):
            return { Self.save(content, of: kept, files) }
        case .drop:
            return { Self.save(.bytes([]), of: kept, files) }
        case .load:
            return { Self.load(kept, files) }
        case .open:
            return { Self.open(kept, files) }
        }
    }

    private static func write(_ bytes: [UInt8]?, of kept: KeptID, _ files: KeptFiles) -> Outcome {
        do throws(KernelFailure) {
            try files.write(bytes, of: kept)
            return .recorded(nil)
        } catch {
            return .recorded(error)
        }
    }

    private static func save(_ content: Content, of kept: KeptID, _ files: KeptFiles) -> Outcome {
        var failure: KernelFailure?
        do throws(KernelFailure) {
            switch content {
            case _ where content.size == 0: try files.dropState(of: kept)
            case .bytes(let bytes): try files.save(bytes, of: kept)
            case .memory(let shared): try files.save(shared.memory, of: kept)
            }
        } catch {
            failure = error
        }
        return .saved(size: files.stateSize(of: kept), failure)
    }

    private static func load(_ kept: KeptID, _ files: KeptFiles) -> Outcome {
        do throws(KernelFailure) {
            guard let size = files.stateSize(of: kept) else { return .bytes([]) }
            guard size <= mostBytesInMessage else { return .large(size) }
            return .bytes(try files.state(of: kept))
        } catch {
            return .failed(error)
        }
    }

    private static func open(_ kept: KeptID, _ files: KeptFiles) -> Outcome {
        do throws(KernelFailure) {
            return .file(SharedFile(try files.openState(of: kept)))
        } catch {
            return .failed(error)
        }
    }

    private func takeResult() {
        for finished in worker.takeResults() {
            if let job = current { finish(job, finished.value) }
        }
    }

    private func finish(_ job: Job, _ outcome: Outcome) {
        current = nil
        if case .saved(let size, _) = outcome, applications[job.kept] != nil {
            applications[job.kept]?.stateSize = size
        }
        switch job.work {
        case .record, .drop:
            note(outcome, of: job.kept)
        case .save(_, let call), .load(let call), .open(let call):
            answer(call, outcome)
        }
        doNext()
    }

    /// Said once: a full disk is no reason to fill the journal too.
    private func note(_ outcome: Outcome, of kept: KeptID) {
        let failure: KernelFailure? =
            switch outcome {
            case .recorded(let failure), .saved(_, let failure): failure
            case .failed(let failure): failure
            case .bytes, .file, .large: nil
            }
        if let failure, !hasFailed {
            journal.log(
                .error,
                "what became of application \(kept.application) of user \(kept.user) may be forgotten: \(failure)"
            )
        }
        hasFailed = failure != nil
    }

    private func answer(_ call: PendingCall, _ outcome: Outcome) {
        switch outcome {
        case .recorded, .saved(_, nil):
            call.reply()
        case .saved(_, let failure?):
            call.fail(.failed("The state was not saved, and what was saved before is kept: \(failure)"))
        case .bytes(let bytes):
            call.reply { message throws(BusFailure) in try message.append(bytes: bytes) }
        case .file(let file):
            if let file {
                call.reply { message throws(BusFailure) in
                    try message.append(descriptor: file.descriptor.rawValue)
                }
            }
        case .large(let size):
            call.fail(
                MethodError(
                    .tooLarge,
                    "The saved state has \(size) bytes, more than \(Self.mostBytesInMessage): use LoadStateFile"
                ))
        case .failed(let failure):
            call.fail(.failed("The saved state cannot be reached: \(failure)"))
        }
    }

    // MARK: The end

    /// The daemon ends: writes down what still waits to be. Whoever waits to have something saved is told that it was not.
    func finish() {
        if current != nil {
            var wait = pollfd(fd: worker.descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&wait, 1, Self.patience) == 1 else {
                return journal.log(
                    .error, "the disk does not answer: what became of applications may be forgotten")
            }
            let queued = (queues, line)
            (queues, line) = ([:], [])
            takeResult()
            (queues, line) = queued
        }
        while let job = takeNext() {
            switch job.work {
            case .record, .drop: note(self.job(for: job)(), of: job.kept)
            case .save, .load, .open: continue
            }
        }
    }
}

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
    private final class SharedFile: Sendable {
        let descriptor: Descriptor
        init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }
    }

    private enum Outcome: Sendable {
        case found(KeptFiles.Found)
        case recorded(KernelFailure?)
        /// nil: nothing is saved.
        case saved(size: UInt64?, KernelFailure?)
        case bytes([UInt8])
        case file(SharedFile)
        /// Too large for a message.
        case large(UInt64)
        case failed(KernelFailure)

        var failure: KernelFailure? {
            switch self {
            case .recorded(let failure), .saved(_, let failure): failure
            case .failed(let failure): failure
            case .found, .bytes, .file, .large: nil
            }
        }
    }

    /// dbus-api: what `SaveState` and `LoadState` carry.
    static let mostBytesInMessage = 1 << 20
    /// Application ids of one user of which anything is kept. A desktop has a few hundred desktop entries.
    private static let mostPerUser = 512
    /// Calls of one user that wait for the disk, ...
    private static let mostWaiting = 32
    /// ... and bytes that they have us hold.
    private static let mostHeldBytes = 4 << 20
    /// How long a start and an orderly end wait for a disk. In microseconds.
    private static let patience: UInt64 = 5_000_000
    /// Between two attempts to write what could not be written. In microseconds.
    private static let pauseOfRetries: UInt64 = 10_000_000

    private let files: KeptFiles
    private let boot: String
    private let state: RuntimeState?
    private let journal: Journal
    private let worker: Worker<UInt32, Outcome>
    private var source: Source?
    /// What an earlier daemon has kept is known. Before, nothing is kept.
    private(set) var isOpen = false
    private var users: [UInt32: [ApplicationID: KeptApplication]] = [:]
    private var line = DiskLine()
    /// Whose saved state is not theirs any more, and may still be on the disk.
    private var dropping: Set<KeptID> = []
    /// Whose record could not be written.
    private var unwritten: Set<KeptID> = []
    private var lastRetry: UInt64 = 0
    private var hasFailed = false

    /// nil where there is no directory: then nothing is kept.
    ///
    /// - Parameter state: where it stands whose saved state is to be dropped, until it is.
    init?(files: KeptFiles?, boot: String, state: RuntimeState?, loop: EventLoop, journal: Journal) throws {
        guard let files else { return nil }
        self.files = files
        self.boot = boot
        self.state = state
        self.journal = journal
        worker = try Worker(name: "appstated-disk", limit: 1, idleMilliseconds: 1_000)
        source = try loop.watch(worker.descriptor) { [weak self] _ in self?.takeResults() }
    }

    /// Reads what an earlier daemon has kept, for one who has the name on the bus. A disk that does not answer is not waited
    /// for: nothing is kept until it does.
    func open() {
        let (files, boot, now) = (files, boot, Clock.realMicroseconds)
        switch worker.submit(0, { .found(files.load(boot: boot, now: now)) }) {
        case .accepted:
            if !takeResult(until: Clock.monotonicMicroseconds + Self.patience) {
                journal.log(.error, "the disk does not answer: nothing is kept of applications until it does")
            }
        case .full: preconditionFailure("the disk's worker does one job at a time")
        case .failed: adopt(files.load(boot: boot, now: now))
        }
    }

    private func adopt(_ found: KeptFiles.Found) {
        for complaint in found.complaints {
            journal.log(.warning, "what is kept of an application is not used: \(complaint)")
        }
        for (kept, known) in found.applications { self[kept] = known }
        isOpen = true
        for kept in state?.drops() ?? [] where self[kept]?.stateSize != nil { drop(kept) }
        state?.writeDrops(dropping)
        doNext()
    }

    private subscript(kept: KeptID) -> KeptApplication? {
        get { users[kept.user]?[kept.application] }
        set {
            users[kept.user, default: [:]][kept.application] = newValue
            if users[kept.user]?.isEmpty == true { users[kept.user] = nil }
        }
    }

    // MARK: Runs

    /// What a launch of this id is told of the run before.
    func launchOptions(of kept: KeptID) -> [LaunchOption: Variant] {
        let known = self[kept]
        var own: [LaunchOption: Variant] = [.firstLaunch: .bool(known?.hasRun != true)]
        if hasState(kept) { own[.restorable] = .bool(true) }
        if let exit = known?.exits.last {
            own[.exitReason] = .string(exit.reason.rawValue)
            if let state = exit.state { own[.previousState] = .string(state.rawValue) }
            if let status = exit.status { own[.exitStatus] = .int32(status) }
        }
        return own
    }

    /// Whether there is something to load once all that waits is done.
    func hasState(_ kept: KeptID) -> Bool { expectedSize(of: kept) > 0 }

    /// What is saved once all that waits is done. In bytes.
    func expectedSize(of kept: KeptID) -> UInt64 {
        for job in line.jobs(of: kept.user).reversed() where job.kept == kept {
            switch job.work {
            case .save(let content, _): return content.size
            case .drop: return 0
            case .record, .load, .open: continue
            }
        }
        return dropping.contains(kept) ? 0 : self[kept]?.stateSize ?? 0
    }

    /// An application with this id is registered.
    ///
    /// - Returns: false where nothing is kept of it: its user has too many.
    func begin(_ kept: KeptID) -> Bool {
        guard isOpen, makeRoom(for: kept) else { return false }
        self[kept]?.runs += 1
        self[kept]?.noteUse(at: Clock.realMicroseconds)
        // What its record says of its state is not true any more.
        let isStale = self[kept]?.wasRunning != true || self[kept]?.stateAtStop != nil
        self[kept]?.wasRunning = false
        self[kept]?.stateAtStop = nil
        if self[kept]?.runs == 1, isStale { write(kept) }
        return true
    }

    /// The daemon ends in good order, which may be the end of this boot: the next one is to know what they were.
    func note(_ states: [(kept: KeptID, state: LifeCycleState)]) {
        for (kept, state) in states where self[kept] != nil {
            self[kept]?.stateAtStop = state
            write(kept)
        }
    }

    /// One that `begin` has taken has ended; or one that an earlier daemon had.
    func end(_ kept: KeptID, _ ending: Ending) {
        guard isOpen, makeRoom(for: kept) else { return }
        self[kept]?.add(
            KeptApplication.Exit(
                time: Clock.realMicroseconds, reason: ending.reason, state: ending.state,
                status: ending.status))
        self[kept]?.wasRunning = false
        let runs = self[kept]?.runs ?? 0
        // What another process of the same id has saved is its own. The drop comes first: who is not told how the last run
        // ended must not find its state either.
        if ending.dropsSavedState, runs <= 1, hasState(kept) { drop(kept) }
        // The last one is written down when it leaves: a record that says both that it has ended and that it runs would
        // have the next daemon count its end twice.
        if runs != 1 { write(kept) }
    }

    /// One that `begin` has taken is no application any more.
    func leave(_ kept: KeptID) {
        guard let runs = self[kept]?.runs, runs > 0 else { return }
        self[kept]?.runs = runs - 1
        guard runs == 1 else { return }
        self[kept]?.hasRun = true
        write(kept)
    }

    /// All that still run are registered again: what ran when the daemon before was killed has ended meanwhile.
    func settle() {
        let now = Clock.realMicroseconds
        for (user, applications) in users {
            for (application, known) in applications {
                let kept = KeptID(user: user, application: application)
                if known.wasRunning, known.runs == 0 {
                    self[kept]?.wasRunning = false
                    self[kept]?.add(
                        KeptApplication.Exit(time: now, reason: .unknown, state: nil, status: nil))
                    write(kept)
                } else if known.isUnwritten {
                    write(kept)
                }
            }
        }
    }

    /// The ends of an application, the last first.
    func history(of kept: KeptID) -> [KeptApplication.Exit] { self[kept]?.exits.reversed() ?? [] }

    /// There is an entry for it, if need be in the place of the one that was used longest ago.
    private func makeRoom(for kept: KeptID) -> Bool {
        if self[kept] != nil { return true }
        let present = users[kept.user] ?? [:]
        if present.count >= Self.mostPerUser {
            let busy = Set(line.jobs(of: kept.user).map(\.kept.application))
            let idle = present.filter { $0.value.isIdle && !busy.contains($0.key) }
            guard let oldest = idle.min(by: { $0.value.usedAt < $1.value.usedAt })?.key else { return false }
            let forgotten = KeptID(user: kept.user, application: oldest)
            self[forgotten] = nil
            write(forgotten)
        }
        self[kept] = KeptApplication(usedAt: Clock.realMicroseconds)
        return true
    }

    // MARK: Saved state

    /// Before anything is taken from a client. Throws where its user would have more saved, or waiting, than one may.
    ///
    /// - Parameter limit: bytes that all of a user's applications may have saved.
    func checkRoom(for content: SavedContent, of kept: KeptID, limit: UInt64) throws(MethodError) {
        try checkQueue(of: kept.user, content.heldBytes)
        guard makeRoom(for: kept) else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostPerUser) applications of user \(kept.user) would have state saved")
        }
        var sizes = sizes(of: kept.user)
        // Whoever has too much, since the limit was lowered, may have less.
        if content.size <= sizes[kept.application] ?? 0 { return }
        sizes[kept.application] = content.size
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
        let waiting = line.jobs(of: user).filter { $0.work.call != nil }
        let held = waiting.map { if case .save(let content, _) = $0.work { content.heldBytes } else { 0 } }
        guard waiting.count < Self.mostWaiting, held.reduce(bytes, +) <= Self.mostHeldBytes else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostWaiting) calls of user \(user), or \(Self.mostHeldBytes) bytes, wait for the disk"
            )
        }
    }

    /// Saves what `checkRoom` has let pass; of nothing, nothing stays saved. Answers once it is on the disk.
    func save(_ content: SavedContent, of kept: KeptID, _ call: PendingCall) {
        enqueue(kept, .save(content, call))
    }

    /// Answers with what was saved last, which is nothing where nothing is.
    ///
    /// - Parameter answered: called once the answer is sent, unless the daemon ends before.
    func load(_ kept: KeptID, _ call: PendingCall, answered: @escaping () -> Void) {
        enqueue(kept, .load(call, answered: answered))
    }

    /// Answers with the file of what was saved last, which is empty where nothing is.
    func open(_ kept: KeptID, _ call: PendingCall) {
        enqueue(kept, .open(call))
    }

    /// The most that each of a user's applications may have on the disk: a save that waits may fail.
    private func sizes(of user: UInt32) -> [ApplicationID: UInt64] {
        var sizes = (users[user] ?? [:]).compactMapValues(\.stateSize)
        for job in line.jobs(of: user) {
            guard case .save(let content, _) = job.work else { continue }
            sizes[job.kept.application] = max(sizes[job.kept.application] ?? 0, content.size)
        }
        return sizes
    }

    /// Saved state that is not its owner's any more. That stands where a daemon that is started after this one finds it.
    private func drop(_ kept: KeptID) {
        if dropping.insert(kept).inserted { state?.writeDrops(dropping) }
        enqueue(kept, .drop)
    }

    // MARK: The disk

    /// Has what is known of it written down, once.
    private func write(_ kept: KeptID) { enqueue(kept, .record) }

    private func enqueue(_ kept: KeptID, _ work: DiskLine.Work) {
        line.add(DiskLine.Job(kept: kept, work: work))
        doNext()
    }

    private func doNext() {
        while isOpen, let job = line.begin() {
            switch worker.submit(job.kept.user, self.job(for: job)) {
            case .accepted: return
            case .full: preconditionFailure("the disk's worker does one job at a time")
            case .failed(let failure): finish(.failed(failure))
            }
        }
    }

    private func job(for job: DiskLine.Job) -> @Sendable () -> Outcome {
        let (files, kept) = (files, job.kept)
        switch job.work {
        case .record:
            let bytes = self[kept].map {
                RecordFile.bytes($0.record(of: kept.application, boot: boot))
            }
            return { Self.write(bytes, of: kept, files) }
        case .save(let content, _):
            return { Self.save(content, of: kept, files) }
        case .drop:
            return { Self.save(.bytes([]), of: kept, files) }
        case .load where dropping.contains(kept):
            return { .bytes([]) }
        case .load:
            return { Self.load(kept, files) }
        case .open where dropping.contains(kept):
            return { Self.opened { () throws(KernelFailure) in try DurableFile.openEmpty() } }
        case .open:
            return { Self.opened { () throws(KernelFailure) in try files.openState(of: kept) } }
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

    private static func save(_ content: SavedContent, of kept: KeptID, _ files: KeptFiles) -> Outcome {
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
        do throws(KernelFailure) {
            return .saved(size: try files.stateSize(of: kept), failure)
        } catch {
            return .failed(failure ?? error)
        }
    }

    private static func load(_ kept: KeptID, _ files: KeptFiles) -> Outcome {
        do throws(KernelFailure) {
            guard let size = try files.stateSize(of: kept) else { return .bytes([]) }
            guard size <= mostBytesInMessage else { return .large(size) }
            return .bytes(try files.state(of: kept))
        } catch {
            return .failed(error)
        }
    }

    private static func opened(_ open: () throws(KernelFailure) -> Descriptor) -> Outcome {
        do throws(KernelFailure) {
            return .file(SharedFile(try open()))
        } catch {
            return .failed(error)
        }
    }

    private func takeResults() {
        for finished in worker.takeResults() {
            if case .found(let found) = finished.value {
                adopt(found)
            } else {
                finish(finished.value)
                doNext()
            }
        }
    }

    /// Waits for what is being done; false: it is not done in time.
    private func takeResult(until end: UInt64) -> Bool {
        while true {
            let now = Clock.monotonicMicroseconds
            var wait = pollfd(fd: worker.descriptor, events: Int16(POLLIN), revents: 0)
            let count = poll(&wait, 1, Int32(now < end ? (end - now + 999) / 1_000 : 0))
            if count < 0, errno == EINTR { continue }
            guard count == 1 else { return false }
            takeResults()
            return true
        }
    }

    private func finish(_ outcome: Outcome) {
        guard let job = line.end() else { return }
        switch (job.work, outcome) {
        case (_, .saved(let size, let failure)):
            if self[job.kept] != nil { self[job.kept]?.stateSize = size }
            // One that was saved before it was to be dropped is still to be.
            let isDropped = failure == nil && !line.isDropWaiting(for: job.kept)
            if isDropped, dropping.remove(job.kept) != nil { state?.writeDrops(dropping) }
        case (.record, .recorded(nil)): unwritten.remove(job.kept)
        case (.record, _): unwritten.insert(job.kept)
        default: break
        }
        if let call = job.work.call {
            answer(call, outcome)
            if case .load(_, let answered) = job.work { answered() }
        } else {
            note(outcome.failure, of: job.kept)
        }
        if outcome.failure == nil { retry() }
    }

    /// The disk takes what is written: perhaps also what it did not take before.
    private func retry() {
        let now = Clock.monotonicMicroseconds
        guard !unwritten.isEmpty || !dropping.isEmpty, now >= lastRetry + Self.pauseOfRetries else { return }
        lastRetry = now
        for kept in unwritten { line.add(DiskLine.Job(kept: kept, work: .record)) }
        for kept in dropping { line.add(DiskLine.Job(kept: kept, work: .drop)) }
    }

    /// Said once: a full disk is no reason to fill the journal too.
    private func note(_ failure: KernelFailure?, of kept: KeptID) {
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
        case .found: break
        case .recorded, .saved(_, nil):
            call.reply()
        case .saved(_, let failure?) where failure.errno == ETXTBSY:
            call.fail(
                MethodError(
                    .limitsExceeded,
                    "The state was not saved: a process has the file open that LoadStateFile gave before; close it first"
                ))
        case .saved(_, let failure?):
            call.fail(.failed("It is not certain that the state was saved: \(failure)"))
        case .bytes(let bytes):
            call.reply { message throws(BusFailure) in try message.append(bytes: bytes) }
        case .file(let file):
            call.reply { message throws(BusFailure) in
                try message.append(descriptor: file.descriptor.rawValue)
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

    /// The daemon ends: does what waits, as long as the disk is not slow. Whoever still waits is told that it does.
    func finish() {
        let end = Clock.monotonicMicroseconds + Self.patience
        while line.current != nil {
            if takeResult(until: end) { continue }
            journal.log(.error, "the disk does not answer: what became of applications may be forgotten")
            break
        }
        isOpen = false
        repeat {
            line.end()?.work.call?.fail(.failed("appstated ends, and the disk has not answered"))
        } while line.begin() != nil
    }
}

import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Keeps the data that outlives an application, the daemon and the boot: how the application ended, its saved state
/// (lifecycle.md § 7), and the launches that it has scheduled. The index is in memory. Only the worker accesses the
/// disk, in the order in which it was asked.
final class Keeper {
    private final class SharedFile: Sendable {
        let descriptor: Descriptor
        init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }
    }

    private struct EarlyEnd {
        let kept: KeptID
        let ending: Ending
        /// CLOCK_REALTIME, microseconds.
        let time: UInt64
    }

    private enum Outcome: Sendable {
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
            case .bytes, .file, .large: nil
            }
        }
    }

    /// dbus-api: the most that `SaveState` and `LoadState` carry.
    static let mostBytesInMessage = 1 << 20
    /// The most application ids of one user for which data is kept. A desktop has a few hundred desktop
    /// entries.
    private static let mostPerUser = 512
    /// How long the startup and an orderly shutdown wait for a disk. In microseconds.
    private static let patience: UInt64 = 5_000_000
    /// The pause between two attempts after a failed write. In microseconds.
    private static let pauseOfRetries: UInt64 = 10_000_000

    private let files: KeptFiles
    private let boot: String
    private let state: RuntimeState?
    private let journal: Journal
    private let worker: Worker
    /// Whether the data of an earlier daemon has been read. Before that, nothing is kept.
    private(set) var isOpen = false
    /// Called when it has been read.
    private var opened: () -> Void = {}
    /// The ends from before that.
    private var earlyEnds: [EarlyEnd] = []
    private var users: [UInt32: [ApplicationID: KeptApplication]] = [:]
    /// The work that is not done, in the order in which it was asked for.
    private var jobs: [Job] = []
    /// The worker does the first of them.
    private var isUnderWay = false
    /// Applications that no longer own their saved state, which may still be on the disk.
    private var dropping: Set<KeptID> = []
    /// The next daemon reads these if this one is killed before they are on the disk.
    private var pendingEnds = PendingEnds()
    /// Applications whose record could not be written.
    private var unwritten: Set<KeptID> = []
    private var lastRetry: UInt64 = 0
    private var hasFailed = false
    /// Calls that are answered once the record of the application is on the disk.
    private var unconfirmed: [KeptID: [PendingCall]] = [:]

    /// nil if there is no directory: then nothing is kept.
    ///
    /// - Parameter state: contains the data that is not yet on the disk: ends, and which saved state must be
    ///   dropped.
    init?(
        files: KeptFiles?, boot: String, state: RuntimeState?, worker: Worker, journal: Journal
    ) {
        guard let files else { return nil }
        self.files = files
        self.boot = boot
        self.state = state
        self.journal = journal
        self.worker = worker
    }

    /// Reads the data of an earlier daemon, once this daemon has the name on the bus. If the disk does not
    /// respond in time, the daemon continues, and nothing is kept until it responds.
    func open() {
        let (files, boot, now) = (files, boot, Clock.realMicroseconds)
        worker.run {
            files.load(boot: boot, now: now)
        } then: { [weak self] in
            self?.adopt($0)
        }
        let end = Clock.monotonicMicroseconds + Self.patience
        while !isOpen, worker.wait(until: end) { worker.complete() }
        if !isOpen {
            journal.log(
                .error, "the disk does not answer: nothing is saved for applications until it does")
        }
    }

    private func adopt(_ found: KeptFiles.Found) {
        for complaint in found.complaints {
            journal.log(.warning, "saved data of an application is not used: \(complaint)")
        }
        for (kept, known) in found.applications { self[kept] = known }
        isOpen = true
        for kept in state?.drops() ?? [] where self[kept]?.stateSize != nil { drop(kept) }
        state?.writeDrops(dropping)
        takeUpEnds()
        opened()
        opened = {}
        doNext()
    }

    /// Calls `body` once the data of an earlier daemon has been read: at once, or later if the disk is late.
    func whenOpen(_ body: @escaping () -> Void) {
        if isOpen { body() } else { opened = body }
    }

    /// Adds the ends that the previous daemon had no time to write.
    private func takeUpEnds() {
        for (kept, ends) in state?.ends().ends ?? [:] {
            for end in ends where self[kept]?.exits.contains(end.exit) != true && makeRoom(for: kept) {
                self[kept]?.add(end.exit)
                if end.isLast { self[kept]?.wasRunning = false }
                pendingEnds.add(end, of: kept)
            }
            write(kept)
        }
        state?.writeEnds(pendingEnds)
    }

    private subscript(kept: KeptID) -> KeptApplication? {
        get { users[kept.user]?[kept.application] }
        set {
            users[kept.user, default: [:]][kept.application] = newValue
            if users[kept.user]?.isEmpty == true { users[kept.user] = nil }
        }
    }

    // MARK: Runs

    /// The information about the previous run for a launch of this id.
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

    /// Whether there is something to load once all work is done.
    func hasState(_ kept: KeptID) -> Bool {
        for job in jobs.reversed() where job.kept == kept {
            switch job.work {
            case .save(let content, _): return content.size > 0
            case .drop, .forget: return false
            case .record, .load, .open: continue
            }
        }
        return !dropping.contains(kept) && self[kept]?.stateSize ?? 0 > 0
    }

    /// Records that an application with this id is registered.
    ///
    /// - Returns: false if nothing is kept about it because there are too many, or the disk has not answered.
    func begin(_ kept: KeptID) -> Bool {
        guard isOpen, makeRoom(for: kept) else { return false }
        self[kept]?.runs += 1
        self[kept]?.noteUse(at: Clock.realMicroseconds)
        // The state in its record is no longer valid.
        let isStale = self[kept]?.wasRunning != true || self[kept]?.stateAtStop != nil
        self[kept]?.wasRunning = false
        self[kept]?.stateAtStop = nil
        if self[kept]?.runs == 1, isStale { write(kept) }
        return true
    }

    /// The daemon shuts down, which may be the end of this boot, so this records the states for the next
    /// daemon.
    func note(_ states: [(kept: KeptID, state: LifeCycleState)]) {
        for (kept, state) in states where self[kept] != nil {
            self[kept]?.stateAtStop = state
            write(kept)
        }
    }

    /// Records the end of an application.
    ///
    /// - Parameter isCounted: `begin` has counted it; false: it ended while no daemon ran, or before the disk had
    ///   answered. Then all that still run must be counted by now.
    func end(_ kept: KeptID, _ ending: Ending, isCounted: Bool) {
        let time = Clock.realMicroseconds
        if isOpen { return end(kept, ending, isCounted: isCounted, at: time) }
        earlyEnds.append(EarlyEnd(kept: kept, ending: ending, time: time))
    }

    private func end(_ kept: KeptID, _ ending: Ending, isCounted: Bool, at time: UInt64) {
        guard makeRoom(for: kept) else { return }
        let exit = KeptApplication.Exit(
            time: time, reason: ending.reason, state: ending.state, status: ending.status)
        self[kept]?.add(exit)
        self[kept]?.wasRunning = false
        let others = (self[kept]?.runs ?? 0) - (isCounted ? 1 : 0)
        let isLast = others <= 0
        pendingEnds.add(PendingEnds.End(exit: exit, isLast: isLast), of: kept)
        state?.writeEnds(pendingEnds)
        // If another process has the same id, the saved state belongs to that process. The removal comes
        // first: a launch whose options do not say how the last run ended must not find that run's state
        // either.
        if ending.dropsSavedState, isLast, hasState(kept) { drop(kept) }
        // The end of the last one is written down when it leaves. If a record said both that it has ended and that it
        // runs, the next daemon would count the end twice.
        if !isCounted || others != 0 { write(kept) }
    }

    /// An application that `begin` has counted was unregistered.
    func leave(_ kept: KeptID) {
        guard let runs = self[kept]?.runs, runs > 0 else { return }
        self[kept]?.runs = runs - 1
        guard runs == 1 else { return }
        self[kept]?.hasRun = true
        write(kept)
    }

    /// All applications that still run are counted. The others that ran when the previous daemon was killed have ended
    /// meanwhile.
    func settle() {
        for early in earlyEnds { end(early.kept, early.ending, isCounted: false, at: early.time) }
        earlyEnds = []
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

    /// How many applications with this id are registered; nil: nothing is kept about it.
    func runs(of kept: KeptID) -> Int? { self[kept]?.runs }

    /// Forgets how an application that is not registered has ended, and what it has saved. Answers once this is on the
    /// disk.
    func forget(_ kept: KeptID, _ call: PendingCall) {
        if hasState(kept), dropping.insert(kept).inserted { state?.writeDrops(dropping) }
        if pendingEnds.remove(of: kept) { state?.writeEnds(pendingEnds) }
        self[kept] = nil
        enqueue(kept, .forget(call))
    }

    /// The ends of an application, the latest first.
    func history(of kept: KeptID) -> [KeptApplication.Exit] { self[kept]?.exits.reversed() ?? [] }

    /// The applications of a user of which an end is recorded.
    func applicationsWithHistory(of user: UInt32) -> [ApplicationID] {
        (users[user] ?? [:]).filter { !$0.value.exits.isEmpty }.map(\.key)
    }

    /// All scheduled launches of all applications.
    var launches: [ScheduledLaunch] {
        users.flatMap { user, applications in
            applications.flatMap { application, known in
                known.launches.map {
                    ScheduledLaunch(
                        owner: ScheduleOwner(user: user, application: application), name: $0.name,
                        trigger: $0.trigger)
                }
            }
        }
    }

    func setLaunches(_ launches: [ScheduledLaunch], of kept: KeptID) {
        guard self[kept] != nil else { return }
        self[kept]?.launches = launches.map { KeptApplication.Launch(name: $0.name, trigger: $0.trigger) }
        write(kept)
    }

    /// Answers once everything that is known about the application is on the disk.
    func confirm(_ kept: KeptID, _ call: PendingCall) {
        if jobs.contains(where: { $0.kept == kept && $0.isRecord }) {
            unconfirmed[kept, default: []].append(call)
        } else {
            call.reply()
        }
    }

    /// Ensures that there is an entry for it, if necessary in place of the entry of its user that was used longest ago.
    private func makeRoom(for kept: KeptID) -> Bool {
        if self[kept] != nil { return true }
        if users[kept.user]?.count ?? 0 >= Self.mostPerUser, !forgetOldest(of: kept.user) { return false }
        self[kept] = KeptApplication(usedAt: Clock.realMicroseconds)
        return true
    }

    /// Forgets the entry of a user that was used longest ago; false: none may be forgotten.
    private func forgetOldest(of user: UInt32) -> Bool {
        let busy = Set(jobs.lazy.filter { $0.kept.user == user }.map(\.kept.application))
        let idle = (users[user] ?? [:]).filter { $0.value.isIdle && !busy.contains($0.key) }
        guard let oldest = idle.min(by: { $0.value.usedAt < $1.value.usedAt })?.key else { return false }
        let forgotten = KeptID(user: user, application: oldest)
        self[forgotten] = nil
        unwritten.remove(forgotten)
        write(forgotten)
        return true
    }

    // MARK: Saved state

    /// Must be called before anything is taken from a client. Throws if the user would have more saved than allowed.
    ///
    /// - Parameter limit: bytes that all of a user's applications may have saved.
    func checkRoom(for content: SavedContent, of kept: KeptID, limit: UInt64) throws(MethodError) {
        guard makeRoom(for: kept) else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostPerUser) applications of user \(kept.user) would have state saved")
        }
        var sizes = sizes(of: kept.user)
        // A user who exceeds the limit because it was lowered may still replace state by smaller state.
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

    /// Saves content that `checkRoom` has accepted; empty content deletes the saved state. Answers once it is
    /// on the disk.
    func save(_ content: SavedContent, of kept: KeptID, _ call: PendingCall) {
        enqueue(kept, .save(content, call))
    }

    /// Answers with the state that was saved last, or with empty state.
    func load(_ kept: KeptID, _ call: PendingCall) { enqueue(kept, .load(call)) }

    /// Answers with the file of the state that was saved last, which is empty if nothing is saved.
    func open(_ kept: KeptID, _ call: PendingCall) { enqueue(kept, .open(call)) }

    /// The most that each of a user's applications may have on the disk, considering that a waiting save may fail.
    private func sizes(of user: UInt32) -> [ApplicationID: UInt64] {
        var sizes = (users[user] ?? [:]).compactMapValues(\.stateSize)
        for job in jobs where job.kept.user == user {
            guard case .save(let content, _) = job.work else { continue }
            sizes[job.kept.application] = max(sizes[job.kept.application] ?? 0, content.size)
        }
        return sizes
    }

    /// Drops saved state that no longer belongs to its application. A daemon that is started after this one finds the
    /// pending drop in the runtime state.
    private func drop(_ kept: KeptID) {
        if dropping.insert(kept).inserted { state?.writeDrops(dropping) }
        enqueue(kept, .drop)
    }

    // MARK: The disk

    /// Schedules the record of the application to be written, once.
    private func write(_ kept: KeptID) { enqueue(kept, .record) }

    private func enqueue(_ kept: KeptID, _ work: Work) {
        add(Job(kept: kept, work: work))
        doNext()
    }

    /// Adds a job, unless a waiting job would do the same.
    private func add(_ job: Job) {
        let others = jobs.dropFirst(isUnderWay ? 1 : 0).filter { $0.kept == job.kept }
        switch job.work {
        case .record where others.contains(where: \.isRecord): return
        case .drop where others.last(where: { !$0.isRecord })?.isDrop == true: return
        default: jobs.append(job)
        }
    }

    /// One job at a time: a record describes the moment in which it is written.
    private func doNext() {
        guard isOpen, !isUnderWay, let next = jobs.first else { return }
        isUnderWay = true
        worker.run(job(for: next)) { [weak self] in self?.finish($0) }
    }

    private func job(for job: Job) -> @Sendable () -> Outcome {
        let (files, kept) = (files, job.kept)
        switch job.work {
        case .record:
            let bytes = record(of: kept)
            return { Self.write(bytes, of: kept, files) }
        case .forget:
            // An application with this id may have begun meanwhile.
            let bytes = record(of: kept)
            return { Self.forget(kept, writing: bytes, files) }
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

    /// nil: there is nothing to record.
    private func record(of kept: KeptID) -> [UInt8]? {
        self[kept].map { RecordFile.bytes($0.record(of: kept.application, boot: boot)) }
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

    private static func forget(_ kept: KeptID, writing bytes: [UInt8]?, _ files: KeptFiles) -> Outcome {
        let dropped = save(.bytes([]), of: kept, files)
        guard case .saved(let size, nil) = dropped else { return dropped }
        do throws(KernelFailure) {
            try files.write(bytes, of: kept)
            return dropped
        } catch {
            return .saved(size: size, error)
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

    private func finish(_ outcome: Outcome) {
        // Not after the daemon's end.
        guard isUnderWay else { return }
        isUnderWay = false
        let job = jobs.removeFirst()
        let others = jobs.filter { $0.kept == job.kept }
        switch (job.work, outcome) {
        case (_, .saved(let size, let failure)):
            if self[job.kept] != nil { self[job.kept]?.stateSize = size }
            // State that was saved before a drop was requested must still be dropped.
            let isDropped = failure == nil && !others.contains(where: \.isDrop)
            if isDropped, dropping.remove(job.kept) != nil { state?.writeDrops(dropping) }
        case (.record, .recorded(nil)):
            unwritten.remove(job.kept)
            if !others.contains(where: \.isRecord), pendingEnds.remove(of: job.kept) {
                state?.writeEnds(pendingEnds)
            }
        // If it was forgotten to make room, nothing is left to be written.
        case (.record, _): if self[job.kept] != nil { unwritten.insert(job.kept) }
        default: break
        }
        if job.isRecord, !others.contains(where: \.isRecord) {
            for call in unconfirmed.removeValue(forKey: job.kept) ?? [] {
                if let failure = outcome.failure {
                    call.fail(.failed("It is not certain that the launch is kept: \(failure)"))
                } else {
                    call.reply()
                }
            }
        }
        if case .forget(let call) = job.work, let failure = outcome.failure {
            unwritten.insert(job.kept)
            call.fail(.failed("It is not certain that the application is forgotten: \(failure)"))
        } else if let call = job.work.call {
            answer(call, outcome)
        } else {
            note(outcome.failure, of: job.kept)
        }
        if outcome.failure == nil { retry() }
        doNext()
    }

    /// The disk accepts writes again, perhaps also those that it did not accept before.
    private func retry() {
        let now = Clock.monotonicMicroseconds
        guard !unwritten.isEmpty || !dropping.isEmpty, now >= lastRetry + Self.pauseOfRetries else { return }
        lastRetry = now
        for kept in unwritten { add(Job(kept: kept, work: .record)) }
        // A drop behind a waiting save would remove what was just saved.
        for kept in dropping where !jobs.contains(where: { $0.kept == kept && $0.isSave }) {
            add(Job(kept: kept, work: .drop))
        }
    }

    /// Logged once: a full disk is no reason to fill the journal as well.
    private func note(_ failure: KernelFailure?, of kept: KeptID) {
        if let failure, !hasFailed {
            journal.log(
                .error,
                "cannot save how application \(kept.application) of user \(kept.user) ended: \(failure)"
            )
        }
        hasFailed = failure != nil
    }

    private func answer(_ call: PendingCall, _ outcome: Outcome) {
        switch outcome {
        case .recorded, .saved(_, nil):
            call.reply()
        case .saved(_, let failure?) where failure.errno == ETXTBSY:
            call.fail(
                MethodError(
                    .limitsExceeded,
                    "The state was not saved: a process still has the file from LoadStateFile open; close it first"
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

    /// The daemon ends. Does the waiting work, and tries once more what failed, unless the disk is slow. Calls that
    /// still wait after that get an error.
    func finish() {
        lastRetry = 0
        retry()
        doNext()
        let end = Clock.monotonicMicroseconds + Self.patience
        while isUnderWay {
            guard worker.wait(until: end) else {
                journal.log(.error, "the disk does not answer: how applications ended may be lost")
                break
            }
            worker.complete()
        }
        (isOpen, isUnderWay) = (false, false)
        for call in unconfirmed.values.joined() + jobs.compactMap(\.work.call) {
            call.fail(.failed("appstated is ending, and the disk has not answered"))
        }
        jobs = []
    }
}

extension Keeper {
    fileprivate struct Job {
        let kept: KeptID
        let work: Work

        var isRecord: Bool { if case .record = work { true } else { false } }
        var isSave: Bool { if case .save = work { true } else { false } }
        var isDrop: Bool {
            switch work {
            case .drop, .forget: true
            case .record, .save, .load, .open: false
            }
        }
    }

    fileprivate enum Work {
        /// Writes the record of the application, or removes it if there is nothing to record.
        case record
        case save(SavedContent, PendingCall)
        case load(PendingCall)
        case open(PendingCall)
        case drop
        /// Drops the saved state, and then does what `record` does.
        case forget(PendingCall)

        /// The call that waits for the work.
        var call: PendingCall? {
            switch self {
            case .save(_, let call), .load(let call), .open(let call), .forget(let call): call
            case .record, .drop: nil
            }
        }
    }
}

/// The content that a client saves.
enum SavedContent: Sendable {
    case bytes([UInt8])
    case memory(SharedMemory)

    var size: UInt64 {
        switch self {
        case .bytes(let bytes): UInt64(bytes.count)
        case .memory(let shared): shared.memory.size
        }
    }
}

/// A memory file that the worker reads.
final class SharedMemory: Sendable {
    let memory: SealedMemory
    init(_ memory: consuming SealedMemory) { self.memory = memory }
}

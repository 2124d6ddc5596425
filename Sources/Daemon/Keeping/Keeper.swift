import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Keeps the data that outlives an application, the daemon and the boot: how the application ended, its saved state
/// (lifecycle.md § 7), and the launches that it has scheduled. The index is in memory. Only the worker accesses the
/// disk, in the order in which it was asked.
///
/// The index says what will be on the disk when all that was asked for is done.
final class Keeper {
    /// dbus-api: the most that `SaveState` and `LoadState` carry.
    static let mostBytesInMessage = 1 << 20
    /// The most application ids of one user for which data is kept. A desktop has a few hundred desktop
    /// entries.
    private static let mostPerUser = 512
    /// How long the startup and an orderly shutdown wait for a disk. In microseconds.
    private static let patience: UInt64 = 5_000_000

    private let files: KeptFiles
    /// In the runtime directory: the records with an end that is not on the disk yet, for the next daemon.
    private let copies: KeptFiles?
    private let boot: String
    private let core: Core
    private let table: ApplicationTable
    private let worker: Worker
    private let journal: Journal
    /// Whether the data of an earlier daemon has been read. Before that, nothing is kept.
    private(set) var isOpen = false
    /// The ends from before that.
    private var earlyEnds: [(kept: KeptID, ending: Ending, time: UInt64)] = []
    private var users: [UInt32: [ApplicationID: KeptApplication]] = [:]
    /// The jobs that are not done.
    private var jobs = 0
    /// The applications whose records are to be written, and the one whose record is being written.
    private var changed: [KeptID] = []
    private var writing: KeptID?
    /// Those whose record could not be written. They are tried again once the disk accepts another one.
    private var failed: [KeptID] = []
    private var copied: Set<KeptID> = []
    /// Calls that are answered once the record of the application is on the disk.
    private var unconfirmed: [KeptID: [PendingCall]] = [:]

    /// nil if there is no directory: then nothing is kept.
    init?(
        files: KeptFiles?, copies: KeptFiles?, boot: String, core: Core, table: ApplicationTable,
        worker: Worker, journal: Journal
    ) {
        guard let files else { return nil }
        self.files = files
        self.copies = copies
        self.boot = boot
        self.core = core
        self.table = table
        self.worker = worker
        self.journal = journal
    }

    /// Reads the data of an earlier daemon, once this daemon has the name on the bus and has taken over the applications.
    /// If the disk does not respond in time, the daemon continues, and nothing is kept until it responds.
    func open() {
        let (files, copies, boot, now) = (files, copies, boot, Clock.realMicroseconds)
        run {
            (files.load(boot: boot, now: now), copies?.load(boot: boot, now: now))
        } then: { [weak self] in
            self?.adopt($0.0, copies: $0.1 ?? KeptFiles.Found())
        }
        if !isDone(within: Self.patience, isOpen) {
            journal.log(
                .error, "the disk does not answer: nothing is saved for applications until it does")
        }
    }

    /// From now on, the history and saved state of all applications that run are kept.
    private func adopt(_ found: KeptFiles.Found, copies: KeptFiles.Found) {
        for complaint in found.complaints + copies.complaints {
            journal.log(.warning, "saved data of an application is not used: \(complaint)")
        }
        for (kept, known) in found.applications { self[kept] = known }
        for (kept, known) in copies.applications {
            let size = self[kept]?.stateSize
            self[kept] = known
            self[kept]?.stateSize = known.dropsState ? nil : size
            copied.insert(kept)
        }
        isOpen = true
        for application in table.all.sorted(by: { $0.number < $1.number }) {
            if let kept = application.toBeKept { application.isKept = begin(kept) }
        }
        for early in earlyEnds { end(early.kept, early.ending, isCounted: false, at: early.time) }
        earlyEnds = []
        let now = Clock.realMicroseconds
        for (user, applications) in users {
            for (application, known) in applications {
                let kept = KeptID(user: user, application: application)
                // It ran when the previous daemon was killed, and has ended meanwhile.
                let isGone = known.wasRunning && known.runs == 0
                if isGone { self[kept]?.add(KeptApplication.Exit(time: now, reason: .unknown)) }
                if isGone || known.isUnwritten || copied.contains(kept) { write(kept) }
            }
        }
        let launches = launches
        if !launches.isEmpty { core.report(.scheduled(launches)) }
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

    /// Whether there is something to load.
    func hasState(_ kept: KeptID) -> Bool { self[kept]?.stateSize != nil }

    /// Records that an application with this id is registered.
    ///
    /// - Returns: false if nothing is kept about it because there are too many, or the disk has not answered.
    func begin(_ kept: KeptID) -> Bool {
        guard isOpen, makeRoom(for: kept) else { return false }
        self[kept]?.noteUse(at: Clock.realMicroseconds)
        if self[kept]?.begin() == true { write(kept) }
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
    func end(_ application: Registered, _ ending: Ending) {
        guard let kept = application.toBeKept else { return }
        let time = Clock.realMicroseconds
        // It may have ended while no daemon ran, or before the disk had answered.
        let isCounted = application.isKept
        application.isKept = false
        if isOpen { return end(kept, ending, isCounted: isCounted, at: time) }
        earlyEnds.append((kept, ending, time))
    }

    private func end(_ kept: KeptID, _ ending: Ending, isCounted: Bool, at time: UInt64) {
        guard makeRoom(for: kept) else { return }
        if isCounted { self[kept]?.leave() }
        self[kept]?.add(
            KeptApplication.Exit(
                time: time, reason: ending.reason, state: ending.state, status: ending.status))
        // If another process has the same id, the saved state belongs to that process.
        if ending.dropsSavedState, self[kept]?.runs == 0, hasState(kept) {
            self[kept]?.stateSize = nil
            self[kept]?.dropsState = true
        }
        copied.insert(kept)
        copy(kept)
        write(kept)
    }

    /// An application that `begin` has counted was unregistered.
    func leave(_ application: Registered) {
        guard let kept = application.kept, self[kept]?.leave() == true else { return }
        write(kept)
    }

    /// How many applications with this id are registered; nil: nothing is kept about it.
    func runs(of kept: KeptID) -> Int? { self[kept]?.runs }

    /// The ends of an application, the latest first.
    func history(of kept: KeptID) -> [KeptApplication.Exit] { self[kept]?.exits.reversed() ?? [] }

    /// The applications of a user of which an end is recorded.
    func applicationsWithHistory(of user: UInt32) -> [ApplicationID] {
        (users[user] ?? [:]).filter { !$0.value.exits.isEmpty }.map(\.key)
    }

    /// All scheduled launches of all applications.
    private var launches: [ScheduledLaunch] {
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
        if writing == kept || changed.contains(kept) {
            unconfirmed[kept, default: []].append(call)
        } else {
            call.reply()
        }
    }

    /// Ensures that there is an entry for it, if necessary in place of the entry of its user that was used longest ago.
    private func makeRoom(for kept: KeptID) -> Bool {
        if self[kept] != nil { return true }
        if let others = users[kept.user], others.count >= Self.mostPerUser {
            let idle = others.filter { $0.value.isIdle }
            guard let oldest = idle.min(by: { $0.value.usedAt < $1.value.usedAt })?.key else { return false }
            let forgotten = KeptID(user: kept.user, application: oldest)
            self[forgotten] = nil
            write(forgotten)
        }
        self[kept] = KeptApplication(usedAt: Clock.realMicroseconds)
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
        var sizes = (users[kept.user] ?? [:]).compactMapValues(\.stateSize)
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
        // It takes the place of the state that is to be dropped.
        let dropped = self[kept]?.dropsState == true
        self[kept]?.beginSaving(content.size)
        run { [files] in
            let result = Result { () throws(KernelFailure) in try files.save(content, of: kept) }
            return (result, size: try? files.stateSize(of: kept))
        } then: { [weak self] result, size in
            guard let self else { return }
            switch result {
            case .success:
                self[kept]?.haveSaved()
                if dropped, copied.contains(kept) { copy(kept) }
                call.reply()
            case .failure(let failure):
                self[kept]?.haveNotSaved(left: dropped ? nil : size, drops: dropped)
                if dropped { write(kept) }
                call.fail(.failed("It is not certain that the state was saved: \(failure)"))
            }
        }
    }

    /// Answers with the state that was saved last, or with empty state.
    func load(_ kept: KeptID, _ call: PendingCall) {
        let hasState = hasState(kept)
        answer(call) { (files) throws(KernelFailure) -> [UInt8]? in
            guard hasState, let size = try files.stateSize(of: kept) else { return [] }
            return size > Self.mostBytesInMessage ? nil : try files.state(of: kept)
        } _: { state in
            guard let state else {
                return call.fail(
                    MethodError(
                        .tooLarge,
                        "The saved state has more than \(Self.mostBytesInMessage) bytes: use LoadStateFile"))
            }
            call.reply { message throws(BusFailure) in try message.append(bytes: state) }
        }
    }

    /// Answers with the file of the state that was saved last, which is empty if nothing is saved.
    func open(_ kept: KeptID, _ call: PendingCall) {
        let hasState = hasState(kept)
        answer(call) { (files) throws(KernelFailure) in
            SharedFile(try hasState ? files.openState(of: kept) : DurableFile.openEmpty())
        } _: { file in
            call.reply { message throws(BusFailure) in
                try message.append(descriptor: file.descriptor.rawValue)
            }
        }
    }

    private func answer<Value: Sendable>(
        _ call: PendingCall, _ job: @escaping @Sendable (KeptFiles) throws(KernelFailure) -> Value,
        _ answer: @escaping (Value) -> Void
    ) {
        run { [files] in
            Result { () throws(KernelFailure) in try job(files) }
        } then: { result in
            switch result {
            case .success(let value): answer(value)
            case .failure(let failure): call.fail(.failed("The saved state cannot be reached: \(failure)"))
            }
        }
    }

    /// Forgets how an application that is not registered has ended, and what it has saved. Answers once this is on the
    /// disk.
    func forget(_ kept: KeptID, _ call: PendingCall) {
        self[kept] = nil
        changed.removeAll { $0 == kept }
        failed.removeAll { $0 == kept }
        removeCopy(kept)
        run { [files] in
            Result { () throws(KernelFailure) in
                try files.dropState(of: kept)
                try files.write(nil, of: kept)
            }
        } then: { result in
            switch result {
            case .success: call.reply()
            case .failure(let failure):
                call.fail(.failed("It is not certain that the application is forgotten: \(failure)"))
            }
        }
    }

    // MARK: The disk

    /// Does something on the disk, after all that was asked for before.
    private func run<Value: Sendable>(
        _ job: @escaping @Sendable () -> Value, then completion: @escaping (Value) -> Void
    ) {
        jobs += 1
        worker.run(job) { [weak self] in
            self?.jobs -= 1
            completion($0)
        }
    }

    /// Schedules the record of the application to be written, once.
    private func write(_ kept: KeptID) {
        if !changed.contains(kept) { changed.append(kept) }
        writeNext()
    }

    /// One at a time: a record describes the moment in which it is written.
    private func writeNext() {
        guard isOpen, writing == nil, !changed.isEmpty else { return }
        let kept = changed.removeFirst()
        writing = kept
        let bytes = self[kept].map { RecordFile.bytes($0.record(of: kept.application, boot: boot)) }
        let dropsState = self[kept]?.dropsState == true
        run { [files] in
            Result { () throws(KernelFailure) in
                // First: a launch whose options do not say how the last run ended must not find that run's state either.
                if dropsState { try files.dropState(of: kept) }
                try files.write(bytes, of: kept)
            }
        } then: { [weak self] in
            self?.haveWritten(kept, $0)
        }
    }

    private func haveWritten(_ kept: KeptID, _ result: Result<Void, KernelFailure>) {
        writing = nil
        defer { writeNext() }
        switch result {
        case .success:
            changed += failed
            failed = []
        case .failure(let failure):
            // Logged once: a full disk is no reason to fill the journal as well.
            if failed.isEmpty {
                journal.log(
                    .error,
                    "cannot save how application \(kept.application) of user \(kept.user) ended: \(failure)")
            }
            if !failed.contains(kept) { failed.append(kept) }
        }
        if changed.contains(kept) { return }
        if case .success = result {
            self[kept]?.dropsState = false
            removeCopy(kept)
        }
        for call in unconfirmed.removeValue(forKey: kept) ?? [] {
            switch result {
            case .success: call.reply()
            case .failure(let failure):
                call.fail(.failed("It is not certain that the launch is kept: \(failure)"))
            }
        }
    }

    /// The copy outlives the daemon, not the boot.
    private func copy(_ kept: KeptID) {
        guard let known = self[kept] else { return }
        var record = known.record(of: kept.application, boot: boot)
        if known.dropsState { record.add(KeptApplication.dropsStateKey) }
        try? copies?.write(RecordFile.bytes(record), of: kept)
    }

    private func removeCopy(_ kept: KeptID) {
        if copied.remove(kept) != nil { try? copies?.write(nil, of: kept) }
    }

    /// The daemon ends. Does the waiting work, and tries once more what failed, unless the disk is slow. Calls that
    /// still wait after that get no answer.
    func finish() {
        guard isOpen else { return }
        changed += failed
        failed = []
        writeNext()
        if !isDone(within: Self.patience, jobs == 0) {
            journal.log(.error, "the disk does not answer: how applications ended may be lost")
        }
        isOpen = false
    }

    /// Waits for the worker.
    private func isDone(within patience: UInt64, _ isDone: @autoclosure () -> Bool) -> Bool {
        let end = Clock.monotonicMicroseconds + patience
        while !isDone(), worker.wait(until: end) { worker.complete() }
        return isDone()
    }
}

/// A file that the worker has opened.
private final class SharedFile: Sendable {
    let descriptor: Descriptor
    init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }
}

import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Sets the resources of each application according to its state (`[State …]`), and restores the original
/// values when it leaves. `ResourceLedger` determines the necessary writes.
final class Resources {
    private let proc: Proc
    private let journal: Journal
    private let core: Core
    private let applications: ApplicationTable
    private let records: Records
    private var table = ResourceTable()
    private var mode = Settings.Mode.enforce
    private var ledgers: [ApplicationNumber: ResourceLedger] = [:]
    /// Cgroup files that this machine lacks and that were logged: one line for all applications.
    private var lacking: Set<String> = []

    /// Applications whose state has changed, until the effect of that has been determined.
    private var changed: Set<ApplicationNumber> = []
    private var timer: Timer?
    private let now: () -> Microseconds
    /// The work that the worker is determining, or that is being written piece by piece; and the work that
    /// must be determined again after that.
    private var underWay: [ApplicationNumber: Stage] = [:]
    private var again: Set<ApplicationNumber> = []
    /// Applications that have left and whose resources are not completely restored.
    private var leaving: [ApplicationNumber: Registered] = [:]
    /// For each newcomer, the applications for which it waits: the values of a newcomer may be those of
    /// another application of its user, until that application has been examined without it and the
    /// newcomer's original values are restored.
    private var awaited: [ApplicationNumber: Set<ApplicationNumber>] = [:]
    /// The newcomers among an application's processes, until their original values are restored.
    private var departing: [ApplicationNumber: Set<ProcessIdentity>] = [:]
    /// Applications of an earlier daemon for which it had changed nothing.
    private var strangers: [Registered] = []
    /// Applications that the worker cannot accept now, or for which descriptors or memory are lacking.
    private var postponed: Set<ApplicationNumber> = []
    private var recovery: Timer?
    private var hasNoThread = false
    private let share: WorkShare
    private let slices: SliceProtection
    private let retries: Retries<ApplicationNumber>
    private let turn: Turn
    private var worker: KeyedWorker<Job, Planned>?
    private var source: Source?
    private var writer: LedgerWriter?
    /// A client waits for the answer to a call. It finds the values of the new state when it has the answer.
    var isAwaited = false
    private var lastJob: UInt64 = 0
    /// The writes that come after all others.
    private var waiting: [ApplicationNumber: ResourceLedger.Changes] = [:]
    /// What the record of an application names once the present writes are done.
    private var settled: [ApplicationNumber: [String]] = [:]
    /// Applications whose new values could not be recorded, and have not been set for this reason.
    private var unrecorded: Set<ApplicationNumber> = []
    private var recordTimer: Timer?
    /// The daemon ends, so everything is done at once.
    private var isEnding = false
    /// Whether a write need not wait long; known when the daemon ends.
    private var canWrite = true
    /// The values of these applications are not restored when the daemon ends. They stay recorded for the
    /// next daemon.
    private(set) var owed: Set<ApplicationNumber> = []

    private enum Stage {
        case planning(UInt64)
        case writing(ResourceLedger.Changes)
        /// `writer` does it.
        case handedOver
    }

    /// How long the end of the daemon waits for `writer`, in milliseconds.
    private static let longestDrain: UInt64 = 5_000

    private struct Job: Sendable {
        let application: ApplicationNumber
        let number: UInt64
    }

    /// nil: it could not be done.
    private typealias Planned = (ledger: ResourceLedger, changes: ResourceLedger.Changes, entries: Entries)?

    /// What is recorded about an application when its values change.
    private struct Entries {
        /// Names the values before and those after: the daemon may be killed when some of them are written.
        let meanwhile: [String]
        let after: [String]

        init(from present: ResourceLedger, to planned: ResourceLedger) {
            after = planned.entries
            meanwhile = Set(present.entries).union(after).sorted()
        }
    }

    /// The most large applications that are being examined.
    private static let mostJobs = 64

    /// The pause between two attempts to have something examined, while there is no thread for it, or while descriptors
    /// or memory are lacking.
    private static let recoveryPause: Microseconds = 100_000
    /// The pause between two attempts to record values. No event says that a full disk has room again.
    private static let recordPause: Microseconds = 1_000_000
    /// The most applications that are tried again after such a pause.
    private static let mostRecovered = 16

    /// The settings that each application got last.
    private var rows: [ApplicationNumber: ResourceRow] = [:]

    /// The resources of a large application follow its state with this delay, one application in each turn. A
    /// change that is reverted therefore costs nothing, and no caller waits until the values of two hundred
    /// processes are set.
    private static let lag: Microseconds = 100_000
    /// An application with more values to restore than this counts as large: some ten processes.
    private static let large = 40

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds,
        background: Background, core: Core, applications: ApplicationTable, records: Records
    ) throws {
        self.proc = proc
        self.now = now
        self.journal = journal
        self.core = core
        self.applications = applications
        self.records = records
        share = background.share
        slices = SliceProtection(hierarchy: try? UnifiedHierarchy.find(proc: proc), journal: journal)
        retries = try Retries(loop: loop, now: now, background: background)
        turn = Turn(loop, now)
        timer = try loop.timer { [weak self] in self?.follow() }
        recovery = try loop.timer { [weak self] in
            guard let self else { return }
            takePostponed(hasNoThread ? 1 : Self.mostRecovered)
        }
        recordTimer = try loop.timer { [weak self] in self?.recordAgain() }
        // Without the worker, large applications are left as they are.
        worker = try? KeyedWorker(name: "appstated-res", limit: Self.mostJobs)
        if let worker {
            source = try? loop.watch(worker.descriptor) { [weak self] _ in self?.takeResults() }
        }
        writer = try LedgerWriter(loop: loop) { [weak self] in self?.wasWritten($0, $1, $2) }
    }

    /// The application's state has changed.
    func stateChanged(_ application: Registered) {
        // No user should wait for a window that is slowed.
        let isSlowed = rows[application.number]?.cpuQuota != nil
        guard application.resources.count > Self.large, !isSlowed else { return update(application) }
        if changed.isEmpty { timer?.arm(at: now() + Self.lag) }
        changed.insert(application.number)
    }

    private func follow() {
        while let number = changed.popFirst() {
            guard let application = applications[number], let state = core.application(number)?.state,
                rows[number] != row(of: number, in: state)
            else { continue }
            note(application, state)
            // When it is its user's turn.
            settleLater(number)
            break
        }
        if !changed.isEmpty { timer?.arm(at: now()) }
    }

    /// Applies a configuration to every application.
    func configure(_ table: ResourceTable, _ mode: Settings.Mode) {
        slices.configure(
            [table.active, table.inactive, table.background, table.suspended].compactMap(\.memoryLow).max(),
            recordSlices)
        if table == self.table && mode == self.mode { return }
        self.table = table
        self.mode = mode
        for application in applications.all { update(application) }
    }

    /// Adds a new application. It may have been part of another application's extent until now; in that case
    /// its original values are restored first.
    func enroll(_ application: Registered) {
        awaitMakers(of: application)
    }

    /// Re-examines the applications that may have set the values of a newcomer. The newcomer is not examined
    /// before that.
    private func awaitMakers(of application: Registered) {
        let number = application.number
        let makers = makers(of: application)
        for maker in makers { departing[maker, default: []].insert(application.process) }
        let others = ledgers.keys.filter { makers.contains($0) || mayHave(application, $0) }
        if others.isEmpty { return }
        awaited[number] = Set(others)
        for other in others {
            if let other = applications[other] {
                update(other)
            } else if let other = leaving[other] {
                settle(other)
            }
        }
    }

    /// Whether a newcomer has, or is about to get, the values of another application. Only applications of
    /// the same user affect it, so that it waits for no other user.
    private func mayHave(_ newcomer: Registered, _ number: ApplicationNumber) -> Bool {
        guard number != newcomer.number, let other = applications[number] ?? leaving[number],
            other.user == newcomer.user
        else { return false }
        if case .planning? = underWay[number] { return true }
        return ledgers[number]?.contains(newcomer.process) == true
    }

    /// The applications in whose extent a newcomer was until now, whether or not it was found there: the
    /// nearest application above it, and those between the two that have left.
    private func makers(of newcomer: Registered) -> Set<ApplicationNumber> {
        let ancestors = proc.lineage(of: newcomer.process.pid).dropFirst()
        let maker = ancestors.lazy.compactMap { self.applications[$0] }.first
        // Up to and including that one, which may have registered again.
        let between = Set(ancestors.prefix { $0 != maker?.process } + (maker.map { [$0.process] } ?? []))
        var makers = leaving.values.filter { between.contains($0.process) }
        if let maker { makers.append(maker) }
        return Set(makers.lazy.filter { $0.user == newcomer.user }.map(\.number))
    }

    /// Resets the values that an earlier daemon set for the slices above its applications, before those are
    /// taken over.
    func begin(after left: [RuntimeState.LeftResources]) {
        slices.takeBack(left.flatMap(\.entries))
    }

    /// Takes over an application of an earlier daemon, with the entries that the daemon left for it.
    func adopt(_ entries: [String], for application: Registered) {
        if entries.isEmpty {
            strangers.append(application)
        } else {
            application.resources = entries
            var ledger = takeLedger(of: application)
            ledger.adopt(entries)
            keep(ledger, of: application)
            slices.protect(application.number, ledger.protectedCgroup, recordSlices)
        }
    }

    /// All applications of the earlier daemon are there. Some may still have the values of another application, because
    /// that daemon was killed before they had their own.
    func haveAdopted() {
        for application in strangers { awaitMakers(of: application) }
        strangers = []
        // The earlier daemon may have restored everything before it ended, or had another configuration.
        changed.formUnion(applications.all.map(\.number))
        if !changed.isEmpty { timer?.arm(at: now()) }
    }

    /// Sets the resources that an application's current state requires.
    func update(_ application: Registered) {
        guard let state = core.application(application.number)?.state else { return }
        note(application, state)
        settle(application)
    }

    private func note(_ application: Registered, _ state: LifeCycleState) {
        let row = row(of: application.number, in: state)
        rows[application.number] = mode == .enforce ? row : nil
        if mode == .observe {
            let what = row.words.joined(separator: " ")
            if !what.isEmpty {
                journal.log(
                    .debug, "would get \(what)", about: application, as: .resources, [(.reason, what)])
            }
        }
    }

    /// The settings of the configuration and the user's rule for an application in this state.
    private func row(of number: ApplicationNumber, in state: LifeCycleState) -> ResourceRow {
        let application = core.application(number)
        var row = table[state]
        if state == .background, application?.isServing == true { row.takeTime(from: table.inactive) }
        row.cpuQuota = application?.cpuQuota.map { Int32(clamping: $0) }
        return row
    }

    /// Restores an application's original values, whether it ended or was given up.
    func remove(_ application: Registered) {
        let number = application.number
        rows[number] = nil
        changed.remove(number)
        // It need not wait any longer, because nothing was set for it yet.
        awaited[number] = nil
        unrecorded.remove(number)
        leaving[number] = application
        settle(application)
    }

    /// Restores the original values of every application, no matter how long it takes, because the daemon
    /// shuts down.
    func putBackAll() {
        isEnding = true
        canWrite = writer?.drain(milliseconds: Self.longestDrain) ?? true
        rows = [:]
        again = []
        awaited = [:]
        postponed = []
        unrecorded = []
        for application in Array(applications.all) + Array(leaving.values) { settle(application) }
    }

    // MARK: Piece by piece

    /// Applies `rows`, to a small application at once. For a large one the worker determines the writes, and
    /// they are done in pieces.
    private func settle(_ application: Registered) {
        let number = application.number
        // Those of an earlier step, for which nobody waited. They do not end what begins here.
        if isAwaited, !isEnding, case .handedOver? = underWay[number] {
            again.insert(number)
            awaitWrites(of: number)
        }
        if isEnding {
            switch underWay.removeValue(forKey: number) {
            case .writing(var changes)?: _ = carryOut(&changes, of: application)
            case .handedOver?:
                owed.insert(number)
                return
            case .planning?, nil: break
            }
            if var rest = waiting.removeValue(forKey: number) {
                guard canWrite else {
                    owed.insert(number)
                    return
                }
                _ = carryOut(&rest, of: application)
            }
        } else if underWay[number] != nil || awaited[number] != nil {
            again.insert(number)
            return
        } else if postponed.contains(number) {
            return
        }
        let row = rows[number]
        var cgroup: String?
        var memoryCgroup: String?
        if row != nil {
            guard let own = applications.ownControllers(of: application, within: turn.budget) else {
                return settleLater(number)
            }
            (cgroup, memoryCgroup) = (own.weights, own.memory)
        }
        let ledger = takeLedger(of: application)
        // Not in the ledger itself: a plan that is given up leaves nothing behind, and neither does one that cannot be
        // recorded.
        var planned = ledger
        if let changes = planned.plan(
            row ?? ResourceRow(), cgroup: cgroup, memoryCgroup: memoryCgroup,
            departing: departing[number] ?? [], within: budget, isForeign: applications.isForeign)
        {
            keep(ledger, of: application)
            write(changes, planned, of: application, entries: nil)
        } else {
            keep(ledger, of: application)
            submit(application, ledger, row ?? ResourceRow(), cgroup, memoryCgroup)
        }
    }

    private var budget: Budget { isEnding ? .unlimited : turn.budget }

    private func settleLater(_ number: ApplicationNumber) {
        // The pieces that are still to be written wait under the same key.
        if underWay[number] != nil {
            again.insert(number)
            return
        }
        guard let user = (applications[number] ?? leaving[number])?.user else { return }
        retries.work(on: number, of: user) { [weak self] in
            guard let self else { return .settled }
            if let application = applications[number] ?? leaving[number] { settle(application) }
            return .settled
        }
    }

    private func submit(
        _ application: Registered, _ ledger: ResourceLedger, _ row: ResourceRow, _ cgroup: String?,
        _ memoryCgroup: String?
    ) {
        lastJob += 1
        let job = Job(application: application.number, number: lastJob)
        let foreign = applications.foreign
        let departing = departing[application.number] ?? []
        let submission = worker?.submit(job) {
            var planned = ledger
            guard
                let changes = planned.plan(
                    row, cgroup: cgroup, memoryCgroup: memoryCgroup, departing: departing,
                    isForeign: foreign.contains)
            else { return nil }
            return (planned, changes, Entries(from: ledger, to: planned))
        }
        switch submission {
        case .accepted?:
            hasNoThread = false
            underWay[application.number] = .planning(job.number)
            // The worker may accept the next one as well.
            takePostponed(1)
        case .full?:
            postpone(application.number)
        case .failed(let failure)?:
            if !hasNoThread {
                journal.log(.warning, "setting the resources of large applications is delayed: \(failure)")
            }
            hasNoThread = true
            postpone(application.number)
        case nil:
            finish(application)
        }
    }

    /// Until the worker has returned a result, and no longer than the pause.
    private func postpone(_ number: ApplicationNumber) {
        if postponed.isEmpty { recovery?.arm(at: now() + Self.recoveryPause) }
        postponed.insert(number)
    }

    private func takePostponed(_ count: Int) {
        for _ in 0..<count {
            guard let number = postponed.popFirst() else { return }
            settleLater(number)
        }
        if !postponed.isEmpty { recovery?.arm(at: now() + Self.recoveryPause) }
    }

    private func takeResults() {
        let results = worker?.takeResults() ?? []
        takePostponed(results.count)
        for finished in results {
            let number = finished.key.application
            guard case .planning(finished.key.number)? = underWay[number] else { continue }
            underWay[number] = nil
            guard let application = applications[number] ?? leaving[number] else { continue }
            share.charge(finished.processorTime, to: application.user, at: now())
            // The determined writes are no longer wanted, or belong to another application by now.
            if again.remove(number) != nil {
                settleLater(number)
            } else if let (ledger, changes, entries) = finished.value {
                write(changes, ledger, of: application, entries: entries)
            }
        }
    }

    private func write(
        _ changes: ResourceLedger.Changes, _ planned: ResourceLedger, of application: Registered,
        entries: Entries?
    ) {
        let number = application.number
        var (changes, planned) = (changes, planned)
        settled[number] = nil
        unrecorded.remove(number)
        // A value that could not be restored if the daemon were killed is not changed.
        if !changes.isEmpty, rows[number] != nil {
            let entries = entries ?? Entries(from: ledgers[number] ?? planned, to: planned)
            let all = entries.meanwhile + slices.entries(of: number, next: planned.protectedCgroup)
            if all == application.resources || records.writeResources(of: application, all) {
                settled[number] = entries.after
            } else {
                planned.keepOnlyRestores(&changes)
                if unrecorded.isEmpty { recordTimer?.arm(at: now() + Self.recordPause) }
                unrecorded.insert(number)
            }
        }
        keep(planned, of: application)
        if !isEnding || !canWrite { waiting[number] = changes.takeWaiting() }
        if changes.isEmpty || carryOut(&changes, of: application) { return haveWritten(application) }
        underWay[number] = .writing(changes)
        retries.work(on: number, of: application.user) { [weak self] in
            guard let self, case .writing(var changes)? = underWay[number],
                let application = applications[number] ?? leaving[number]
            else { return .settled }
            guard carryOut(&changes, of: application) else {
                underWay[number] = .writing(changes)
                return .soon
            }
            underWay[number] = nil
            haveWritten(application)
            return .settled
        }
    }

    /// The writes that need not wait are done.
    private func haveWritten(_ application: Registered) {
        guard let rest = waiting.removeValue(forKey: application.number) else { return finish(application) }
        if isEnding {
            owed.insert(application.number)
        } else {
            handOver(rest, of: application)
        }
    }

    private func handOver(_ changes: ResourceLedger.Changes, of application: Registered) {
        let number = application.number
        underWay[number] = .writing(changes)
        let attempt = { [weak self] () -> Retries<ApplicationNumber>.Outcome in
            guard let self, case .writing(let changes)? = underWay[number], let ledger = ledgers[number]
            else { return .settled }
            guard writer?.write(changes, with: ledger, of: number) == true else { return .later }
            underWay[number] = .handedOver
            return .settled
        }
        guard attempt() == .settled else {
            return retries.work(on: number, of: application.user, attempt)
        }
        if isAwaited { awaitWrites(of: number) }
    }

    private func awaitWrites(of number: ApplicationNumber) {
        writer?.wait {
            if case .handedOver? = underWay[number] { false } else { true }
        }
    }

    private func wasWritten(
        _ number: ApplicationNumber, _ ledger: ResourceLedger, _ processorTime: Microseconds
    ) {
        guard case .handedOver? = underWay[number],
            let application = applications[number] ?? leaving[number]
        else { return }
        underWay[number] = nil
        share.charge(processorTime, to: application.user, at: now())
        keep(ledger, of: application)
        if !isEnding { finish(application) }
    }

    private func carryOut(_ changes: inout ResourceLedger.Changes, of application: Registered) -> Bool {
        var ledger = takeLedger(of: application)
        let isDone = ledger.carryOut(&changes, within: budget)
        keep(ledger, of: application)
        return isDone
    }

    private func finish(_ application: Registered) {
        let number = application.number
        if again.remove(number) != nil { return settleLater(number) }
        if ledgers[number]?.takeShortage() == true {
            // The outstanding values stay recorded: if the daemon ends, the next one restores them.
            if isEnding { owed.insert(number) } else { postpone(number) }
            return
        }
        if unrecorded.contains(number) { return }
        departing[number] = nil
        shortenRecord(of: application)
        // Nothing of an application that has left is protected, even if its cgroup went before it was written.
        let isOver = leaving[number] != nil || isEnding
        guard slices.protect(number, isOver ? nil : ledgers[number]?.protectedCgroup, recordSlices) else {
            if isEnding { owed.insert(number) } else { postpone(number) }
            return
        }
        if rows[number] == nil { ledgers[number]?.forget() }
        if leaving.removeValue(forKey: number) != nil {
            ledgers[number] = nil
            records.haveGivenBack(number)
        }
        goOn(after: number)
    }

    /// Tries again to record, and then to set, the values of some applications: others each time.
    private func recordAgain() {
        for number in unrecorded.shuffled().prefix(Self.mostRecovered) { settleLater(number) }
        if !unrecorded.isEmpty { recordTimer?.arm(at: now() + Self.recordPause) }
    }

    /// Once all values are written, the record names these values only. If a write has failed, it stays as it is.
    private func shortenRecord(of application: Registered) {
        let number = application.number
        let after = settled.removeValue(forKey: number) ?? (rows[number] == nil ? [] : nil)
        guard let after, !isEnding, leaving[number] == nil, ledgers[number]?.isAsPlanned == true
        else { return }
        let all = after + application.resources.filter(SliceProtection.isEntry)
        if all != application.resources { _ = records.writeResources(of: application, all) }
    }

    /// Writes down what is set for the slices above an application, beside the values of the application itself. The
    /// record of an application that has left stays as it is until it is deleted.
    private func recordSlices(_ number: ApplicationNumber, _ entries: [String]) -> Bool {
        guard let application = applications[number], leaving[number] == nil, !isEnding else { return true }
        let all = application.resources.filter { !SliceProtection.isEntry($0) } + entries
        return all == application.resources || records.writeResources(of: application, all)
    }

    /// The original values of the newcomers that waited for an application to be examined without them are
    /// restored now.
    private func goOn(after number: ApplicationNumber) {
        for (newcomer, others) in awaited where others.contains(number) {
            let rest = others.subtracting([number])
            awaited[newcomer] = rest.isEmpty ? nil : rest
            if rest.isEmpty, again.remove(newcomer) != nil { settleLater(newcomer) }
        }
    }

    /// Removed from the dictionary, so that it is changed in place.
    private func takeLedger(of application: Registered) -> ResourceLedger {
        ledgers.removeValue(forKey: application.number)
            ?? ResourceLedger(proc: proc, main: application.process, owner: application.user)
    }

    private func keep(_ ledger: ResourceLedger, of application: Registered) {
        var ledger = ledger
        for note in ledger.takeNotes() { tell(note, of: application) }
        ledgers[application.number] = ledger
    }

    // MARK: Explained

    /// The values that the daemon has set for an application, and those that it leaves alone, as of the last
    /// change, in words. Distinct values of one setting are listed one by one, up to a readable number.
    func given(_ application: Registered) -> [String] {
        let figures = ledgers[application.number]?.figures ?? [:]
        var lines = figures.map { $0.words(count: $1) }.sorted().prefix(Self.mostExplained).map { $0 }
        if let quota = rows[application.number]?.cpuQuota,
            !figures.keys.contains(where: { $0.knob == .cpuQuota })
        {
            lines.append(
                "CPUQuota=\(quota)% cannot be set: it needs a cgroup of its own, with a cpu controller and no limit yet"
            )
        }
        return lines
    }

    /// With `Mode=observe`, the values that an application would get in its state, as the configuration
    /// writes them: weights if it has its own cgroup, nice value and I/O class if it has none.
    func wouldGive(_ application: Registered) -> [String] {
        guard mode == .observe, let state = core.application(application.number)?.state else { return [] }
        var row = row(of: application.number, in: state)
        let own = applications.ownControllers(of: application, within: turn.budget)
        if own?.weights != nil {
            row.nice = nil
            row.ioClass = nil
        } else {
            row.cpuWeight = nil
            row.ioWeight = nil
            row.cpuQuota = nil
        }
        if own?.memory == nil { row.memoryLow = nil }
        return row.words
    }

    private static let mostExplained = 64

    private func tell(_ note: ResourceLedger.Note, of application: Registered) {
        if case .failed(let failure) = note, failure.isNoSuchFile {
            let file = failure.subject.split(separator: "/").last.map(String.init) ?? failure.subject
            guard lacking.insert(file).inserted else { return }
        }
        if case .failed(let failure) = note {
            journal.log(.notice, failure: "\(failure)", of: application)
        } else {
            let what = note.description
            journal.log(.notice, what, about: application, as: .leftAlone, [(.reason, what)])
        }
    }
}

extension ResourceRow {
    /// Its settings as the configuration writes them; empty if it sets nothing.
    fileprivate var words: [String] {
        var words: [String] = []
        if let cpuWeight { words.append("CPUWeight=\(cpuWeight)") }
        if let ioWeight { words.append("IOWeight=\(ioWeight)") }
        if let cpuQuota { words.append("CPUQuota=\(cpuQuota)%") }
        if let memoryLow { words.append("MemoryLow=\(Double(memoryLow) / 100)%") }
        if let oomScoreAdjust { words.append("OOMScoreAdjust=\(oomScoreAdjust)") }
        if let nice { words.append("Nice=\(nice)") }
        if let ioClass { words.append("IOSchedulingClass=\(ioClass == .idle ? "idle" : "best-effort")") }
        return words
    }
}

extension ResourceLedger.Figure {
    /// The value, and the one before, as the configuration writes them.
    ///
    /// - Parameter count: the number of its processes or threads that have it.
    func words(count: Int) -> String {
        let name: String
        var whose = ""
        switch knob {
        case .cpuWeight: name = "CPUWeight"
        case .ioWeight: name = "IOWeight"
        case .cpuQuota: name = "CPUQuota"
        case .memoryLow: name = "MemoryLow"
        case .oom:
            name = "OOMScoreAdjust"
            whose = count == 1 ? " (1 process)" : " (\(count) processes)"
        case .nice, .io:
            name = knob == .nice ? "Nice" : "IOSchedulingClass"
            whose = count == 1 ? " (1 thread)" : " (\(count) threads)"
        }
        guard let written else { return "\(name) was set by another program, left alone\(whose)" }
        return "\(name)=\(word(written)), was \(word(original))\(whose)"
    }

    private func word(_ value: Int32) -> String {
        switch knob {
        case .io: IOPriority(rawValue: value).description
        case .cpuQuota: value == CgroupShares.unlimited ? "none" : "\(value / 1_000)%"
        case .memoryLow: value == Int32.max ? "all" : "\((Int(value) * Int(getpagesize())) >> 20)M"
        case .nice, .oom, .cpuWeight, .ioWeight: String(value)
        }
    }
}

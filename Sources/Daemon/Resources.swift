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
    /// Cgroup files that this machine lacks and that were logged: one line for all applications.
    private var lacking: Set<String> = []

    /// Applications that have left and whose resources are not completely restored.
    private var leaving: [ApplicationNumber: Registered] = [:]
    /// For each newcomer, the applications for which it waits: the values of a newcomer may be those of
    /// another application of its user, until that application has been examined without it and the
    /// newcomer's original values are restored.
    private var awaited: [ApplicationNumber: Set<ApplicationNumber>] = [:]
    /// The newcomers among an application's processes, until their original values are restored.
    private var departing: [ApplicationNumber: Set<ProcessIdentity>] = [:]
    /// Applications of an earlier daemon for which it had changed nothing.
    private var untouched: [Registered] = []
    private let slices: SliceProtection
    /// For applications some of whose values could not be set, because descriptors or memory are lacking, or the disk is
    /// full. No event says that this is over.
    private let retry: Retry<ApplicationNumber>
    /// The daemon ends.
    private var isEnding = false
    /// The values of these applications are not restored when the daemon ends. They stay recorded for the
    /// next daemon.
    private(set) var owed: Set<ApplicationNumber> = []

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds, core: Core,
        applications: ApplicationTable, records: Records
    ) throws(BusFailure) {
        self.proc = proc
        self.journal = journal
        self.core = core
        self.applications = applications
        self.records = records
        slices = SliceProtection(hierarchy: UnifiedHierarchy.find(), journal: journal)
        retry = try Retry(loop: loop, now: now)
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
        let others = (Array(applications.all) + leaving.values).filter {
            $0.ledger != nil && (makers.contains($0.number) || mayHave(application, $0))
        }.map(\.number)
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
    private func mayHave(_ newcomer: Registered, _ other: Registered) -> Bool {
        other !== newcomer && other.user == newcomer.user && other.ledger?.contains(newcomer.process) == true
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
            untouched.append(application)
        } else {
            application.resources = entries.joined(separator: "\n")
            var ledger = ResourceLedger(proc: proc, main: application.process, owner: application.user)
            ledger.adopt(entries)
            for note in ledger.takeNotes() { tell(note, of: application) }
            application.ledger = ledger
            slices.protect(application.number, ledger.protectedCgroup, recordSlices)
        }
    }

    /// All applications of the earlier daemon are there. Some may still have the values of another application, because
    /// that daemon was killed before they had their own.
    func haveAdopted() {
        for application in untouched { awaitMakers(of: application) }
        untouched = []
        // The earlier daemon may have restored everything before it ended, or had another configuration.
        for application in applications.all { update(application) }
    }

    /// Sets the resources that an application's current state requires.
    func update(_ application: Registered) {
        guard let state = core.application(application.number)?.state else { return }
        note(application, state)
        settle(application)
    }

    private func note(_ application: Registered, _ state: LifeCycleState) {
        let row = row(of: application.number, in: state)
        application.row = mode == .enforce ? row : nil
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
        application.row = nil
        // It need not wait any longer, because nothing was set for it yet.
        awaited[number] = nil
        leaving[number] = application
        settle(application)
    }

    /// Restores the original values of every application, because the daemon shuts down.
    func putBackAll() {
        isEnding = true
        awaited = [:]
        for application in Array(applications.all) + leaving.values {
            application.row = nil
            settle(application)
        }
    }

    // MARK: Setting

    /// Applies its row to an application, and tries again later what could not be done.
    private func settle(_ application: Registered) {
        let number = application.number
        if awaited[number] != nil { return }
        if isSettled(application) {
            retry.cancel(number)
            return finish(application)
        }
        // If the daemon ends, the outstanding values stay recorded, and the next one restores them.
        if isEnding {
            owed.insert(number)
        } else if !retry.contains(number) {
            retry.schedule(number) { [weak self] in
                guard let self, let application = applications[number] ?? leaving[number] else { return true }
                guard isSettled(application) else { return false }
                finish(application)
                return true
            }
        }
    }

    private func isSettled(_ application: Registered) -> Bool {
        let number = application.number
        let row = application.row
        let own = row.map { _ in applications.ownControllers(of: application) }
        let present =
            application.ledger
            ?? ResourceLedger(proc: proc, main: application.process, owner: application.user)
        var ledger = present
        var changes = ledger.plan(
            row ?? ResourceRow(), cgroup: own?.weights, memoryCgroup: own?.memory,
            departing: departing[number] ?? [], isForeign: applications.isForeign)
        // A value that could not be restored if the daemon were killed is not changed.
        let isRecorded =
            changes.isEmpty || row == nil || record(from: present, to: ledger, of: application)
        if !isRecorded { ledger.keepOnlyRestores(&changes) }
        let after = ledger.entries
        ledger.carryOut(changes)
        for note in ledger.takeNotes() { tell(note, of: application) }
        let isShort = ledger.takeShortage()
        application.ledger = ledger
        guard isRecorded, !isShort else { return false }
        departing[number] = nil
        if !changes.isEmpty || row == nil { shortenRecord(of: application, to: row == nil ? [] : after) }
        // Nothing of an application that has left is protected, even if its cgroup went before it was written.
        let isOver = leaving[number] != nil || isEnding
        return slices.protect(number, isOver ? nil : ledger.protectedCgroup, recordSlices)
    }

    /// Names the values before and those after: the daemon may be killed when some of them are written.
    private func record(
        from present: ResourceLedger, to planned: ResourceLedger, of application: Registered
    ) -> Bool {
        let meanwhile = Set(present.entries).union(planned.entries).sorted()
        let all = meanwhile + slices.entries(of: application.number, next: planned.protectedCgroup)
        return records.writeResources(of: application, all)
    }

    /// Once all values are written, the record names these values only. If a write has failed, it stays as it is.
    private func shortenRecord(of application: Registered, to entries: [String]) {
        let number = application.number
        guard !isEnding, leaving[number] == nil, application.ledger?.isAsPlanned == true else { return }
        _ = records.writeResources(
            of: application, entries + recorded(of: application, aboutSlices: true))
    }

    private func recorded(of application: Registered, aboutSlices: Bool) -> [String] {
        application.resources.split(separator: "\n").map(String.init).filter {
            SliceProtection.isEntry($0) == aboutSlices
        }
    }

    private func finish(_ application: Registered) {
        let number = application.number
        if application.row == nil { application.ledger?.forget() }
        if leaving.removeValue(forKey: number) != nil {
            application.ledger = nil
            records.haveGivenBack(number)
        }
        // The original values of the newcomers that waited for this application are restored now.
        for (newcomer, others) in awaited where others.contains(number) {
            let rest = others.subtracting([number])
            awaited[newcomer] = rest.isEmpty ? nil : rest
            if rest.isEmpty, let application = applications[newcomer], application.row != nil {
                settle(application)
            }
        }
    }

    /// Writes down what is set for the slices above an application, beside the values of the application itself. The
    /// record of an application that has left stays as it is until it is deleted.
    private func recordSlices(_ number: ApplicationNumber, _ entries: [String]) -> Bool {
        guard let application = applications[number], leaving[number] == nil, !isEnding else { return true }
        return records.writeResources(
            of: application, recorded(of: application, aboutSlices: false) + entries)
    }

    // MARK: Explained

    /// The values that the daemon has set for an application, and those that it leaves alone, as of the last
    /// change, in words. Distinct values of one setting are listed one by one, up to a readable number.
    func given(_ application: Registered) -> [String] {
        let figures = application.ledger?.figures ?? [:]
        var lines = figures.map { $0.words(count: $1) }.sorted().prefix(Self.mostExplained).map { $0 }
        if let quota = application.row?.cpuQuota,
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
        let own = applications.ownControllers(of: application)
        if own.weights != nil {
            row.nice = nil
            row.ioClass = nil
        } else {
            row.cpuWeight = nil
            row.ioWeight = nil
            row.cpuQuota = nil
        }
        if own.memory == nil { row.memoryLow = nil }
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

import AppStateContract
import LifeCycle
import Linux
import Systemd

/// Sets the resources of each application according to its state (`[State …]`), and gives its own values back when it
/// leaves: the values of its own cgroup, and the OOM score of its processes. Without a cgroup of its own, it
/// does not yield.
final class Resources {
    private let proc: Proc
    private let journal: Journal
    private let core: Core
    private let applications: ApplicationTable
    private let records: Records
    private var table = ResourceTable()
    private var mode = Settings.Mode.enforce
    private var slices: SliceProtection
    /// The daemon ends.
    private var isEnding = false
    /// The failures of each application that were logged.
    private var logged: [ApplicationNumber: Set<String>] = [:]

    init(proc: Proc, journal: Journal, core: Core, applications: ApplicationTable, records: Records) {
        self.proc = proc
        self.journal = journal
        self.core = core
        self.applications = applications
        self.records = records
        slices = SliceProtection(journal: journal)
    }

    /// Applies a configuration to every application.
    func configure(_ table: ResourceTable, _ mode: Settings.Mode) {
        slices.configure(
            [table.active, table.inactive, table.background, table.suspended].compactMap(\.memoryLow).max())
        if table == self.table && mode == self.mode { return }
        self.table = table
        self.mode = mode
        for application in applications.all { update(application) }
    }

    /// A process becomes an application once `enroll` adds it. Until then it may be a part of others: these find it with
    /// what it has inherited, and then give it its own values back.
    func separate(_ application: Registered, enroll: () -> Void) {
        let lineage = proc.lineage(of: application.process.pid)
        let place = applications.cgroup(of: application.process)
        let others = applications.all.filter { other in
            other.user == application.user
                && (lineage.contains(other.process)
                    || other.originals.cgroup.map { place?.isWithin($0) } == true)
        }
        for other in others { update(other) }
        enroll()
        for other in others { update(other) }
    }

    /// The applications of the earlier daemon are there, with what it has recorded of them. It may have had another
    /// configuration.
    func haveAdopted() {
        for application in applications.all {
            slices.restore(application.originals)
            application.originals.confirm(proc)
        }
        for application in applications.all { update(application) }
    }

    /// Gives back what an earlier daemon has recorded of an application that is not taken over.
    func restore(_ record: Record, name: String, owner: UInt32) {
        var originals = Originals(record)
        slices.restore(originals)
        for note in originals.restore(proc, owner: owner, isForeign: applications.isForeign) {
            journal.log(.notice, "resources of application \(name) of the previous daemon: \(note)")
        }
    }

    /// Sets the resources that an application's present state requires.
    func update(_ application: Registered) {
        guard let state = core.application(application.number)?.state else { return }
        let row = row(of: application.number, in: state)
        if isEnding || mode == .enforce { return set(isEnding ? ResourceRow() : row, of: application) }
        let what = row.words.joined(separator: " ")
        if !what.isEmpty {
            journal.log(.debug, "would get \(what)", about: application, as: .resources, [(.reason, what)])
        }
        set(ResourceRow(), of: application)
    }

    /// The settings of the configuration and the user's rule for an application in this state.
    private func row(of number: ApplicationNumber, in state: LifeCycleState) -> ResourceRow {
        let application = core.application(number)
        var row = table[state]
        if application?.isMirrored == true { row = row.mirrored(in: state) }
        if state == .background, application?.isServing == true { row.copyShares(from: table.inactive) }
        row.cpuQuota = application?.cpuQuota
        return row
    }

    /// Gives an application its own values back, whether it has ended or is given up.
    func remove(_ application: Registered) {
        set(ResourceRow(), of: application)
        logged[application.number] = nil
    }

    /// Gives every application its own values back, because the daemon shuts down.
    func putBackAll() {
        isEnding = true
        for application in applications.all { update(application) }
    }

    // MARK: Setting

    private func set(_ row: ResourceRow, of application: Registered) {
        let number = application.number
        var originals = application.originals
        if row == ResourceRow(), originals == Originals() { return }
        let answer = applications.judge(application)
        let own = applications.unit(answer)
        if originals.cgroup != own {
            slices.protect(number, nil)
            originals.slices = nil
            log(originals.enter(own, proc, owner: application.user), of: application)
            application.originals = originals
        }
        let hasScores = row.oomScoreAdjust != nil || !originals.processes.isEmpty
        let plan = originals.plan(
            row, members: hasScores ? members(of: application, answer) : [], main: application.process, proc,
            isForeign: applications.isForeign)
        if originals.isProtecting { originals.slices = slices.amount }
        // What could not be restored if the daemon were killed is not changed.
        if !originals.isRestoring(plan)
            || originals.isProtecting && originals.slices != application.originals.slices
        {
            let former = application.originals
            application.originals = originals
            if records.write(number) != nil {
                application.originals = former
                return set(ResourceRow(), of: application)
            }
        }
        log(plan.notes + originals.carryOut(plan, proc, owner: application.user), of: application)
        slices.protect(number, originals.isProtecting ? originals.cgroup : nil)
        if !originals.isProtecting { originals.slices = nil }
        application.originals = originals
        // They may become another application's.
        if !plan.departed.isEmpty { _ = records.write(number) }
    }

    /// Servers that share its unit are not among them.
    private func members(of application: Registered, _ answer: ApplicationCgroup.Answer) -> [ProcessIdentity]
    {
        var own: Cgroup?
        if case .own(let cgroup) = answer { own = cgroup }
        return Extent.members(of: application.process, in: own, proc: proc, isForeign: applications.isForeign)
    }

    private func log(_ notes: [Originals.Note], of application: Registered) {
        for note in notes {
            switch note {
            case .left:
                journal.log(
                    .notice, "\(note)", about: application, as: .leftAlone, [(.reason, "\(note)")])
            case .failed(let failure):
                let what = "\(failure.operation) \(failure.errno)"
                guard logged[application.number, default: []].insert(what).inserted else { continue }
                journal.log(.notice, failure: "\(note)", of: application)
            }
        }
    }

    // MARK: Explained

    /// The values that the daemon has set for an application, and those that it leaves alone.
    func given(_ application: Registered) -> [String] {
        var counts: [String: Int] = [:]
        for (target, value) in application.originals.values where !value.isOriginal {
            let name = if case .cgroup(let knob) = target { knob.rawValue } else { Originals.score }
            let words =
                value.isLeft
                ? "\(name) was set by another program, left alone"
                : "\(name)=\(value.written), was \(value.original.isEmpty ? "not set" : value.original)"
            counts[words, default: 0] += 1
        }
        var lines = counts.map { words, count in
            guard words.hasPrefix(Originals.score) else { return words }
            return "\(words) (\(count) \(count == 1 ? "process" : "processes"))"
        }.sorted()
        let quota = core.application(application.number)?.cpuQuota
        if mode == .enforce, let quota, application.originals.values[.cgroup(.cpuMax)] == nil {
            lines.append(
                "CPUQuota=\(quota)% cannot be set: it needs a cgroup of its own, with a cpu controller and no limit yet"
            )
        }
        return lines
    }

    /// With `Mode=observe`, the values that an application would get in its state, as the configuration writes them.
    func plannedValues(_ application: Registered) -> [String] {
        guard mode == .observe, let state = core.application(application.number)?.state else { return [] }
        let row = row(of: application.number, in: state)
        let hasOwn = applications.unit(of: application) != nil
        return (hasOwn ? row : ResourceRow(oomScoreAdjust: row.oomScoreAdjust)).words
    }
}

extension Originals.Note: CustomStringConvertible {
    var description: String {
        switch self {
        case .left(let what): what + ": left alone"
        case .failed(let failure): failure.description
        }
    }
}

extension ResourceRow {
    /// Its settings as the configuration writes them; empty if it sets nothing.
    fileprivate var words: [String] {
        [
            cpuWeight.map { "CPUWeight=\($0)" }, ioWeight.map { "IOWeight=\($0)" },
            cpuQuota.map { "CPUQuota=\($0)%" }, memoryLow.map { "MemoryLow=\(Double($0) / 100)%" },
            isAvoided ? "ManagedOOMPreference=avoid" : nil, oomScoreAdjust.map { "OOMScoreAdjust=\($0)" },
        ].compactMap { $0 }
    }
}

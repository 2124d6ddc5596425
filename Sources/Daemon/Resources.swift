import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// Gives each application the resources of its state (`[State …]`), and back what it had of its own when it
/// leaves us. What that takes and why is `ResourceLedger`'s to know.
final class Resources {
    private let proc: Proc
    private let journal: Journal
    private let state: (ApplicationNumber) -> LifeCycleState?
    private var table = ResourceTable()
    private var mode = Settings.Mode.enforce
    private var ledgers: [ApplicationNumber: ResourceLedger] = [:]
    private var applications: [ApplicationNumber: Registered] = [:]
    /// Cgroup files that this machine lacks, as they were told of: one line for all applications.
    private var lacking: Set<String> = []

    /// Those whose state has changed, until it is looked at what that means.
    private var changed: Set<ApplicationNumber> = []
    private var timer: Timer?
    private let now: () -> Microseconds
    /// What each was given last.
    private var rows: [ApplicationNumber: ResourceRow] = [:]

    /// Of a large application resources follow the state so much later, one application a turn: a change that is
    /// taken back costs nothing, and nobody waits for two hundred processes to be given their values.
    private static let lag: Microseconds = 100_000
    /// So many values to be put back make an application a large one: some ten processes.
    private static let large = 40

    /// Whether an extent ends at this process.
    var isForeign: (ProcessIdentity) -> Bool = { _ in false }
    /// The directory of a cgroup that is this application's own: its weights stand for the whole extent.
    var ownCgroup: (Registered) -> String? = { _ in nil }
    /// Called before an application's resources are changed, with the lines that bring them back
    /// (`adopt(_:for:)`) should we not live to do it.
    var writeDown: (Registered, [String]) -> Void = { _, _ in }

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds,
        state: @escaping (ApplicationNumber) -> LifeCycleState?
    ) throws(BusFailure) {
        self.proc = proc
        self.now = now
        self.journal = journal
        self.state = state
        timer = try loop.timer { [weak self] in self?.follow() }
    }

    /// Its state has changed.
    func stateChanged(_ application: Registered) {
        guard application.resources.count > Self.large else { return update(application) }
        if changed.isEmpty { timer?.arm(at: now() + Self.lag) }
        changed.insert(application.number)
    }

    private func follow() {
        while let number = changed.popFirst() {
            guard let application = applications[number], let state = state(number),
                rows[number] != table[state]
            else { continue }
            update(application)
            break
        }
        if !changed.isEmpty { timer?.arm(at: now()) }
    }

    /// Takes a configuration, and gives everybody what that says.
    func configure(_ table: ResourceTable, _ mode: Settings.Mode) {
        if table == self.table && mode == self.mode { return }
        self.table = table
        self.mode = mode
        for application in applications.values { update(application) }
    }

    /// A new application; it may have been part of another one's extent until now, and gets its own back from
    /// that first.
    func enroll(_ application: Registered) {
        for (number, ledger) in ledgers where ledger.contains(application.process) {
            if let other = applications[number] { update(other) }
        }
        applications[application.number] = application
    }

    /// Takes up what an earlier daemon left behind for it (`writeDown`); before its first update.
    func adopt(_ entries: [String], for application: Registered) {
        change(application) { $0.adopt(entries) }
    }

    /// Gives an application what its present state says.
    func update(_ application: Registered) {
        guard let state = state(application.number) else { return }
        let row = table[state]
        rows[application.number] = mode == .enforce ? row : nil
        switch mode {
        case .enforce:
            let cgroup = ownCgroup(application)
            change(application) { ledger in
                ledger.apply(row, cgroup: cgroup, isForeign: isForeign) {
                    writeDown(application, $0.entries)
                }
            }
        case .observe:
            // What was done before the mode was changed is taken back.
            change(application) { $0.putBack(isForeign: isForeign) }
            let what = row.words.joined(separator: " ")
            if !what.isEmpty {
                journal.log(
                    .debug, "would get \(what)", about: application, as: .resources, [(.reason, what)])
            }
        }
    }

    /// Gives back what it had, whether it ended or was given up.
    func remove(_ application: Registered) {
        change(application) { $0.putBack(isForeign: isForeign) }
        ledgers[application.number] = nil
        rows[application.number] = nil
        applications[application.number] = nil
    }

    /// Gives everybody back what they had: the daemon ends in good order.
    func putBackAll() {
        for application in applications.values {
            change(application) { $0.putBack(isForeign: isForeign) }
        }
    }

    // MARK: Explained

    /// What we have set for an application, and what we leave alone, as of the last change, in words. Distinct
    /// values of one knob are told one by one, up to a number that a person reads.
    func given(_ application: Registered) -> [String] {
        var counts: [ResourceEntry: Int] = [:]
        for entry in ledgers[application.number]?.entries ?? [] {
            if let entry = ResourceEntry(entry) { counts[entry, default: 0] += 1 }
        }
        return counts.map { $0.words(count: $1) }.sorted().prefix(Self.mostExplained).map { $0 }
    }

    /// With `Mode=observe`, what its state would give an application, as the configuration writes it: weights
    /// where it has a cgroup of its own, nice value and I/O class where it has none.
    func wouldGive(_ application: Registered) -> [String] {
        guard mode == .observe, let state = state(application.number) else { return [] }
        var row = table[state]
        if ownCgroup(application) != nil {
            row.nice = nil
            row.ioClass = nil
        } else {
            row.cpuWeight = nil
            row.ioWeight = nil
        }
        return row.words
    }

    private static let mostExplained = 64

    private func change(_ application: Registered, _ body: (inout ResourceLedger) -> Void) {
        // Taken out, so that it is changed in place.
        var ledger =
            ledgers.removeValue(forKey: application.number)
            ?? ResourceLedger(proc: proc, main: application.process, owner: application.user)
        body(&ledger)
        for note in ledger.takeNotes() { tell(note, of: application) }
        ledgers[application.number] = ledger
    }

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
    /// Its settings as the configuration writes them; empty where it says nothing.
    fileprivate var words: [String] {
        var words: [String] = []
        if let cpuWeight { words.append("CPUWeight=\(cpuWeight)") }
        if let ioWeight { words.append("IOWeight=\(ioWeight)") }
        if let oomScoreAdjust { words.append("OOMScoreAdjust=\(oomScoreAdjust)") }
        if let nice { words.append("Nice=\(nice)") }
        if let ioClass { words.append("IOSchedulingClass=\(ioClass == .idle ? "idle" : "best-effort")") }
        return words
    }
}

/// One value of `ResourceLedger.entries`, whosever it is.
private struct ResourceEntry: Hashable {
    let knob: ResourceKnob
    /// nil: somebody else has changed it.
    let written: Int32?
    let original: Int32

    init?(_ entry: String) {
        var words = entry.split(separator: " ")[...]
        guard let knob = words.popFirst().flatMap({ ResourceKnob(rawValue: String($0)) }) else { return nil }
        switch knob {
        // Whose it is.
        case .nice, .io, .oom: _ = words.popFirst()
        case .cpuWeight, .ioWeight: break
        }
        guard let original = words.popFirst().flatMap({ Int32($0) }), let written = words.popFirst() else {
            return nil
        }
        self.knob = knob
        self.written = Int32(written)
        self.original = self.written == nil ? 0 : original
    }

    func words(count: Int) -> String {
        let name: String
        var whose = ""
        switch knob {
        case .cpuWeight: name = "CPUWeight"
        case .ioWeight: name = "IOWeight"
        case .oom:
            name = "OOMScoreAdjust"
            whose = count == 1 ? " (1 process)" : " (\(count) processes)"
        case .nice, .io:
            name = knob == .nice ? "Nice" : "IOSchedulingClass"
            whose = count == 1 ? " (1 thread)" : " (\(count) threads)"
        }
        guard let written else { return "\(name) is somebody else's, left alone\(whose)" }
        return "\(name)=\(word(written)), was \(word(original))\(whose)"
    }

    private func word(_ value: Int32) -> String {
        knob == .io ? IOPriority(rawValue: value).description : String(value)
    }
}

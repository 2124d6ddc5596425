import Glibc
import LifeCycle
import Linux

/// What an application had before the daemon gave it what its state says, and what it has been given since. It is a
/// part of the application's record.
///
///     own-cgroup PATH INODE BYTES                  whose values these are; BYTES of memory.low for the slices above it
///     original cpu.weight 100 20 200               what it had; what it has, or is about to get; what it had before that
///     original oom_score_adj 0 900 200 PID START…  the same for its processes
///
/// `-` instead of what it has: another program has changed it, and it is left alone.
struct Originals: Equatable {
    /// Something that has one value.
    enum Target: Hashable {
        case cgroup(CgroupKnob)
        /// The `oom_score_adj` of a process.
        case process(ProcessIdentity)
    }

    /// As the kernel prints it.
    struct Value: Hashable {
        let original: String
        var written: String
        /// What a daemon leaves that is killed before it writes, and what a child has that was born before.
        var before: String
        /// Another program has changed it.
        var isLeft = false

        var isOriginal: Bool { !isLeft && written == original }
    }

    /// What is to be written, and what was found.
    struct Plan {
        fileprivate(set) var changes: [Target] = []
        fileprivate(set) var departed: Set<ProcessIdentity> = []
        fileprivate(set) var notes: [Note] = []
    }

    /// Worth a line in the journal.
    enum Note {
        case left(String)
        case failed(KernelFailure)
    }

    private(set) var cgroup: Cgroup?
    private var identifier: UInt64 = 0
    private(set) var values: [Target: Value] = [:]
    /// What the slices above the cgroup have, or are about to get.
    var slices: String?

    init() {}

    var processes: Set<ProcessIdentity> {
        Set(values.keys.compactMap { if case .process(let process) = $0 { process } else { nil } })
    }

    /// Whether we protect the memory of the cgroup.
    var isProtecting: Bool { values[.cgroup(.memoryLow)].map { !$0.isLeft && !$0.isOriginal } ?? false }

    // MARK: Setting

    /// Gives the former cgroup its values back, and begins with another.
    mutating func enter(_ next: Cgroup?, _ proc: Proc, owner: UInt32) -> [Note] {
        var plan = Plan()
        examineCgroup(ResourceRow(), proc, &plan)
        let notes = plan.notes + carryOut(plan, proc, owner: owner)
        leaveCgroup()
        if let next, let number = try? next.identifier() { (cgroup, identifier) = (next, number) }
        return notes
    }

    private mutating func leaveCgroup() {
        cgroup = nil
        values = values.filter { if case .process = $0.key { true } else { false } }
    }

    private var isCgroupThere: Bool { cgroup.flatMap { try? $0.identifier() } == identifier }

    /// Plans what its cgroup and its processes get, and what former processes and their descendants get back.
    /// `carryOut` writes it, once it is recorded.
    mutating func plan(
        _ row: ResourceRow, members: [ProcessIdentity], main: ProcessIdentity? = nil, _ proc: Proc,
        isForeign: (ProcessIdentity) -> Bool
    ) -> Plan {
        var plan = Plan()
        examineCgroup(row, proc, &plan)
        let former = self
        let own = Set(members)
        for process in processes.subtracting(own).sorted(by: { $0.startTime < $1.startTime })
        where !plan.departed.contains(process) {
            plan.departed.insert(process)
            plan.departed.formUnion(Extent.members(of: process, proc: proc, isForeign: isForeign))
        }
        plan.departed.subtract(own)
        for process in members + plan.departed {
            let row = own.contains(process) ? row : ResourceRow()
            examine(.process(process), proc, &plan) {
                row.score(from: $0)
            } inherited: {
                proc.lineage(of: process.pid).lazy.compactMap { former.values[.process($0)] }.first
                    ?? main.flatMap { former.values[.process($0)] }
            }
        }
        return plan
    }

    private mutating func examineCgroup(_ row: ResourceRow, _ proc: Proc, _ plan: inout Plan) {
        guard isCgroupThere else { return leaveCgroup() }
        for knob in CgroupKnob.allCases {
            examine(.cgroup(knob), proc, &plan) {
                row.value(of: knob, from: $0)
            } inherited: {
                nil
            }
        }
    }

    /// - Parameter inherited: the value of the process that a new one descends from.
    private mutating func examine(
        _ target: Target, _ proc: Proc, _ plan: inout Plan, next: (String) -> String,
        inherited: () -> Value?
    ) {
        let present: String
        do throws(KernelFailure) {
            present = try read(target, proc)
        } catch {
            // A process may have ended, and a cgroup may lack a controller.
            let isMissing = error.isNoSuchProcess || error.isNoSuchFile || error.errno == EOPNOTSUPP
            if isMissing { values[target] = nil } else { plan.notes.append(.failed(error)) }
            return
        }
        var value = values[target] ?? Value(original: present, written: present, before: present)
        if values[target] == nil, let above = inherited(), !above.isLeft,
            present == above.written || present == above.before
        {
            value = Value(original: above.original, written: present, before: present)
        }
        if value.isLeft { return }
        let next = next(value.original)
        // Whoever has given it back does not claim it: `Reclaimer` lifts a limit before it ends an application, and a
        // service manager that reloads its units gives all of them back.
        if present == value.written || present == value.original {
            (value.written, value.before) = (next, present)
            if present != next { plan.changes.append(target) }
        } else {
            value.isLeft = true
            plan.notes.append(
                .left(
                    "\(name(of: target)) was \(value.written), and another program has set it to \(present)"))
        }
        values[target] = value.isOriginal && value.before == value.original ? nil : value
    }

    /// Whether a plan gives original values back and does nothing else. Those are in the record already.
    func isRestoring(_ plan: Plan) -> Bool { plan.changes.allSatisfy { values[$0]?.isOriginal != false } }

    /// Writes what was planned. Returns what has failed.
    mutating func carryOut(_ plan: Plan, _ proc: Proc, owner: UInt32) -> [Note] {
        var notes: [Note] = []
        for target in plan.changes {
            guard let value = values[target] else { continue }
            do throws(KernelFailure) {
                switch target {
                case .cgroup(let knob): try cgroup?.set(knob, to: value.written)
                case .process(let process):
                    try OOMScoreAdjustment.write(
                        Int32(value.written) ?? 0, to: process, owner: owner, proc: proc)
                }
            } catch {
                values[target]?.written = value.before
                if !error.isNoSuchProcess { notes.append(.failed(error)) }
            }
        }
        for process in plan.departed { values[.process(process)] = nil }
        return notes
    }

    private func read(_ target: Target, _ proc: Proc) throws(KernelFailure) -> String {
        switch target {
        case .cgroup(let knob):
            guard let cgroup else {
                throw KernelFailure(operation: "read", subject: knob.rawValue, errno: ENOENT)
            }
            return try cgroup.value(of: knob)
        case .process(let process):
            guard try proc.identity(of: process.pid) == process else {
                throw KernelFailure(operation: "read", subject: process.description, errno: ESRCH)
            }
            return "\(try OOMScoreAdjustment.read(process.pid, proc: proc))"
        }
    }

    private func name(of target: Target) -> String {
        switch target {
        case .cgroup(let knob): "\(knob.rawValue) of \(cgroup?.path ?? "")"
        case .process(let process): "\(Self.score) of process \(process.pid)"
        }
    }

    // MARK: After a restart

    /// Compares what an earlier daemon has recorded with what is there. What is neither of its values nor the original
    /// belongs to another program.
    mutating func confirm(_ proc: Proc) {
        if !isCgroupThere { leaveCgroup() }
        for (target, value) in values where !value.isLeft {
            guard let present = try? read(target, proc) else {
                values[target] = nil
                continue
            }
            if present == value.written { continue }
            values[target] = Value(
                original: value.original, written: present, before: value.written,
                isLeft: present != value.before && present != value.original)
        }
    }

    /// Gives everything back that an earlier daemon has recorded. Returns what has failed.
    mutating func restore(
        _ proc: Proc, owner: UInt32, isForeign: (ProcessIdentity) -> Bool
    ) -> [Note] {
        confirm(proc)
        let plan = plan(ResourceRow(), members: [], proc, isForeign: isForeign)
        return plan.notes + carryOut(plan, proc, owner: owner)
    }

    // MARK: Recorded

    static let score = "oom_score_adj"
    private static let left = "-"

    var lines: [Record.Line] {
        var lines: [Record.Line] = []
        if let cgroup {
            lines.append(Record.Line("own-cgroup", cgroup.path, String(identifier), slices ?? Self.left))
        }
        func add(_ name: String, _ value: Value, _ processes: [String] = []) {
            let written = value.isLeft ? Self.left : value.written
            lines.append(Record.Line("original", [name, value.original, written, value.before] + processes))
        }
        for knob in CgroupKnob.allCases {
            if let value = values[.cgroup(knob)] { add(knob.rawValue, value) }
        }
        let sorted = processes.sorted { ($0.startTime, $0.pid) < ($1.startTime, $1.pid) }
        let groups = Dictionary(grouping: sorted) { values[.process($0)] }
        for (value, processes) in groups.sorted(by: { $0.value[0].pid < $1.value[0].pid }) {
            if let value { add(Self.score, value, processes.flatMap { ProcessID($0).fields }) }
        }
        return lines
    }

    /// The lines that can be read: those of a damaged record, too.
    init(_ record: Record, in hierarchy: UnifiedHierarchy? = .find()) {
        let home = record.understood("own-cgroup") { fields -> (Cgroup, UInt64, String)? in
            guard let hierarchy, let path = fields.text(), let cgroup = Cgroup(path: path, in: hierarchy),
                let number: UInt64 = fields.number(), let slices = fields.text()
            else { return nil }
            return (cgroup, number, slices)
        }.first
        if let home {
            (cgroup, identifier) = (home.0, home.1)
            slices = home.2 == Self.left ? nil : home.2
        }
        let lines = record.understood("original") { fields -> (String, Value, [ProcessID])? in
            guard let name = fields.text(), let original = fields.text(), let written = fields.text(),
                let before = fields.text(), let processes = fields.all({ ProcessID(&$0) })
            else { return nil }
            let isLeft = written == Self.left
            let value = Value(
                original: original, written: isLeft ? original : written, before: before, isLeft: isLeft)
            return (name, value, processes)
        }
        for (name, value, processes) in lines {
            if let knob = CgroupKnob(rawValue: name) { values[.cgroup(knob)] = value }
            for process in processes { values[.process(process.identity)] = value }
        }
    }
}

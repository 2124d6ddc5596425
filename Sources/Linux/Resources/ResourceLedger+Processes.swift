import Glibc

extension ResourceLedger {
    /// A value to be written, and the record before that.
    struct Change: Sendable {
        let key: Key
        let process: ProcessIdentity
        let value: Int32
        let before: Record
    }

    /// Examines the extent and returns the necessary writes. The records already contain the values after
    /// these writes.
    mutating func planProcesses(
        _ row: ResourceRow, _ newcomers: Set<ProcessIdentity>, _ isForeign: (ProcessIdentity) -> Bool
    ) -> [Change] {
        let knobs = knobsInPlay(row)
        guard !knobs.isEmpty else { return [] }
        var plan = Plan(now: Clock.bootTicks)
        let members = ownMembers(of: main, isForeign, &plan)
        look(at: members, knobs, row, &plan)
        lookAtDeparted(newcomers, knobs, isForeign, &plan)
        unowned = plan.unowned
        // Processes that have left are forgotten with what is written now. Processes that were not found have ended,
        // unless they could not be examined, for example because of a lack of descriptors: their original
        // values must not be forgotten for that reason.
        var found = plan.records.filter { !plan.departed.contains($0.key) }
        for (key, record) in records where plan.records[key] == nil {
            if !plan.unowned.contains(record.process), mayLive(key.target) { found[key] = record }
        }
        records = found
        return plan.changes
    }

    mutating func carryOut(_ changes: [Change]) {
        var checked: ProcessIdentity?
        var refusal: KernelFailure?
        var thread: ProcessIdentity?
        for change in changes {
            do throws(KernelFailure) {
                if checked != change.process {
                    checked = change.process
                    refusal = nil
                    do throws(KernelFailure) {
                        try proc.checkOwned(change.process, by: owner)
                    } catch {
                        refusal = error
                    }
                }
                if let refusal { throw refusal }
                let target = change.key.target
                if change.key.knob.isOfThreads, thread != target {
                    try proc.checkThread(target, of: change.process)
                    thread = target
                }
                if try read(change.key.knob, target) == change.before.written {
                    try write(change)
                    // It may have waited, and children that were created meanwhile have the earlier value.
                    records[change.key]?.changedAt = Clock.bootTicks
                } else {
                    // Another process has changed it since: the next examination finds this.
                    records[change.key] = change.before
                    isAsPlanned = false
                }
            } catch {
                fail(change, error)
            }
        }
    }

    // MARK: Examining

    /// The results of one examination, while the records still contain the earlier values.
    fileprivate struct Plan {
        let now: UInt64
        var records: [Key: Record] = [:]
        var departed: Set<Key> = []
        var changes: [Change] = []
        var seen: Set<ProcessIdentity> = []
        var unowned: Set<ProcessIdentity> = []
        /// How many threads and processes were examined.
        var looks = 0
        /// One note for each process, however many threads it has.
        var told: Set<Key> = []
    }

    private func knobsInPlay(_ row: ResourceRow) -> [ResourceKnob] {
        ResourceKnob.ofProcesses.filter { knob in
            row.says(knob) || records.keys.contains { $0.knob == knob }
        }
    }

    /// The extent from a process on, without processes that are not wholly the owner's and the processes below those.
    private mutating func ownMembers(
        of first: ProcessIdentity, _ isForeign: (ProcessIdentity) -> Bool, _ plan: inout Plan
    ) -> [ProcessIdentity] {
        var refused: [ProcessIdentity: KernelFailure] = [:]
        var shortage: KernelFailure?
        func isOwn(_ process: ProcessIdentity) -> Bool {
            do throws(KernelFailure) {
                try proc.checkOwned(process, by: owner)
                return true
            } catch {
                if error.errno == EPERM { refused[process] = error }
                if error.isExhaustion { shortage = error }
                return false
            }
        }
        var members: [ProcessIdentity] = []
        if isOwn(first) {
            members = Extent.members(of: first, limit: Self.limit, proc: proc) {
                isForeign($0) || !isOwn($0)
            }
        }
        if let shortage { noteShortage(shortage) }
        for (process, failure) in refused where plan.unowned.insert(process).inserted {
            if !unowned.contains(process) { note(.failed(failure)) }
        }
        return members
    }

    private mutating func look(
        at processes: [ProcessIdentity], _ knobs: [ResourceKnob], _ row: ResourceRow, _ plan: inout Plan
    ) {
        let hasThreadKnobs = knobs.contains(where: \.isOfThreads)
        for process in processes where plan.seen.insert(process).inserted {
            // A known process is examined no matter how many there are by now, because its values may have to
            // be restored.
            let isKnown = contains(process)
            if knobs.contains(.oom) {
                guard take(isKnown, &plan) else { continue }
                look(.oom, process, process, row, &plan)
            }
            guard hasThreadKnobs, isKnown || plan.looks < Self.limit else { continue }
            for thread in threads(of: process) {
                guard knobs.contains(.oom) && thread == process.pid || take(isKnown, &plan) else { break }
                guard let target = identity(ofThread: thread, in: process) else { continue }
                for knob in knobs where knob.isOfThreads {
                    let isNew = records[Key(knob: knob, target: target)] == nil
                    if isNew, plan.looks >= Self.limit { continue }
                    look(knob, target, process, row, &plan)
                }
            }
        }
    }

    private mutating func threads(of process: ProcessIdentity) -> [Int32] {
        do throws(KernelFailure) {
            return try proc.threads(of: process.pid, atMost: Self.limit + 1)
        } catch {
            noteShortage(error)
            return []
        }
    }

    /// Counts one more to examine; false: there are too many.
    private mutating func take(_ isKnown: Bool, _ plan: inout Plan) -> Bool {
        if plan.looks < (isKnown ? 4 * Self.limit : Self.limit) {
            plan.looks += 1
            if plan.looks < Self.limit || isKnown { return true }
        }
        note(.failed(tooMany))
        return false
    }

    private var tooMany: KernelFailure {
        KernelFailure(operation: "set resources", subject: "process \(main)", errno: E2BIG)
    }

    private func identity(ofThread thread: Int32, in process: ProcessIdentity) -> ProcessIdentity? {
        thread == process.pid ? process : try? proc.identity(ofThread: thread, in: process.pid)
    }

    /// Examines processes that we remember, or that are known to have been members, and that are no longer in
    /// the extent, and the processes below them.
    private mutating func lookAtDeparted(
        _ newcomers: Set<ProcessIdentity>, _ knobs: [ResourceKnob],
        _ isForeign: (ProcessIdentity) -> Bool, _ plan: inout Plan
    ) {
        let departed = newcomers.union(records.values.lazy.map(\.process)).subtracting(plan.seen)
        if departed.isEmpty { return }
        let members = plan.seen
        for process in departed {
            let below = ownMembers(of: process, isForeign, &plan)
            look(at: below, knobs, ResourceRow(), &plan)
        }
        for key in plan.records.keys where plan.records[key].map({ !members.contains($0.process) }) == true {
            plan.departed.insert(key)
        }
    }

    /// Examines one value of one thread or process.
    private mutating func look(
        _ knob: ResourceKnob, _ target: ProcessIdentity, _ process: ProcessIdentity, _ row: ResourceRow,
        _ plan: inout Plan
    ) {
        let present: Int32
        do throws(KernelFailure) {
            present = try read(knob, target)
        } catch {
            // It has ended, or is about to, unless that is not known.
            return noteShortage(error)
        }
        let key = Key(knob: knob, target: target)
        var record = records[key] ?? birth(of: target, in: process, knob, present)
        if record.isLeft {
            if records[key] == nil, record.written != record.original, plan.tell(knob, process) {
                note(.ownValue(knob, of: "process \(process)", present))
            }
            record.written = present
            plan.records[key] = record
            return
        }
        if present != record.written {
            if !mayLive(target) { return }
            if plan.tell(knob, process) {
                note(
                    .changedByOthers(
                        knob, of: "process \(process)", from: record.written, to: present))
            }
            record.isLeft = true
            record.written = present
            plan.records[key] = record
            return
        }
        let value = row.value(knob, from: record.original)
        if value != present {
            plan.changes.append(Change(key: key, process: process, value: value, before: record))
            record.previous = present
            record.changedAt = plan.now
            record.written = value
        }
        plan.records[key] = record
    }

    /// Whether it is not known to have ended. The kernel drops the I/O priority when the process begins to exit.
    private func mayLive(_ target: ProcessIdentity) -> Bool {
        do throws(KernelFailure) {
            let stat = try proc.stat(target.pid)
            return stat.startTime == target.startTime && !stat.isExiting
        } catch {
            return !error.isNoSuchProcess
        }
    }

    /// The record of a process or thread that was not seen before.
    private func birth(
        of target: ProcessIdentity, in process: ProcessIdentity, _ knob: ResourceKnob, _ present: Int32
    ) -> Record {
        let own = Record(process: process, original: present, written: present)
        guard let maker = maker(of: target, in: process, knob) else { return own }
        if let record = heritage(knob, maker, present, target, process) { return record }
        // Another thread of its creator's process may have created it.
        for (key, sibling) in records where key.knob == knob && sibling.process == maker.process {
            if let record = heritage(knob, sibling, present, target, process) { return record }
        }
        if !maker.isLeft, maker.written == maker.original { return own }
        return Record(process: process, original: maker.original, written: present, isLeft: true)
    }

    /// The record of a newcomer that inherited this value from that creator; nil if it did not.
    private func heritage(
        _ knob: ResourceKnob, _ maker: Record, _ present: Int32, _ target: ProcessIdentity,
        _ process: ProcessIdentity
    ) -> Record? {
        if maker.isLeft {
            // A value that another process chose for the creator also applies to the processes that it
            // creates.
            guard present == maker.written else { return nil }
            return Record(process: process, original: present, written: present, isLeft: true)
        }
        if present == maker.original { return Record(process: process, original: present, written: present) }
        // One tick more, because the kernel and we both round.
        let isOfBefore = present == maker.previous && target.startTime <= maker.changedAt + 1
        guard present == maker.written || isOfBefore else { return nil }
        return Record(process: process, original: maker.original, written: present)
    }

    /// The record of the process that a new thread belongs to, else of its parent, else of the main process.
    private func maker(
        of target: ProcessIdentity, in process: ProcessIdentity, _ knob: ResourceKnob
    ) -> Record? {
        if target != process, let leader = records[Key(knob: knob, target: process)] { return leader }
        let first = records[Key(knob: knob, target: main)]
        guard let parent = try? proc.stat(process.pid).parent,
            let identity = try? proc.identity(of: parent)
        else { return first }
        return records[Key(knob: knob, target: identity)] ?? first
    }

    // MARK: Writing

    func read(_ knob: ResourceKnob, _ target: ProcessIdentity) throws(KernelFailure) -> Int32 {
        switch knob {
        case .nice: return try Niceness.read(target.pid)
        case .io: return try IOPriority.read(target.pid).rawValue
        case .oom: return try OOMScoreAdjustment.read(target.pid, proc: proc)
        case .cpuWeight, .ioWeight, .cpuQuota, .memoryLow:
            throw KernelFailure(operation: "read \(knob.rawValue)", subject: "\(target)", errno: EINVAL)
        }
    }

    private func write(_ change: Change) throws(KernelFailure) {
        let target = change.key.target
        switch change.key.knob {
        case .nice:
            try Niceness.set(change.value, target.pid)
        case .io:
            try IOPriority(rawValue: change.value).set(target.pid)
        case .oom:
            try OOMScoreAdjustment.write(change.value, to: target, owner: owner, proc: proc)
        case .cpuWeight, .ioWeight, .cpuQuota, .memoryLow:
            throw KernelFailure(
                operation: "write \(change.key.knob.rawValue)", subject: "\(target)", errno: EINVAL)
        }
    }

    /// The target still has its previous value.
    private mutating func fail(_ change: Change, _ failure: KernelFailure) {
        if failure.isNoSuchProcess {
            records[change.key] = nil
            return
        }
        isAsPlanned = false
        if !change.before.hasFailed { note(.failed(failure)) }
        noteShortage(failure)
        guard records[change.key] != nil else { return }
        var record = change.before
        record.hasFailed = true
        records[change.key] = record
    }
}

extension ResourceLedger.Plan {
    /// Whether this is the first note about this knob of a process.
    fileprivate mutating func tell(_ knob: ResourceKnob, _ process: ProcessIdentity) -> Bool {
        told.insert(ResourceLedger.Key(knob: knob, target: process)).inserted
    }
}

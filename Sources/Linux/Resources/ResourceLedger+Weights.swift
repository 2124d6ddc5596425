import Glibc

extension ResourceLedger {
    /// A weight to be written, and the record before that.
    struct WeightChange: Sendable {
        let knob: ResourceKnob
        let value: Int32
        let before: CgroupRecord
    }

    /// Examines the cgroup and returns the necessary writes. The records already contain the values after
    /// these writes.
    mutating func planWeights(
        _ row: ResourceRow, _ weighable: String?, _ protectable: String?
    ) -> [WeightChange] {
        var changes: [WeightChange] = []
        for knob in ResourceKnob.ofCgroups where row.says(knob) || weights[knob] != nil {
            let cgroup = knob == .memoryLow ? protectable : weighable
            if let record = weights[knob], record.directory != cgroup {
                // The application has another cgroup now, or none: the original value of this one is
                // restored.
                do throws(KernelFailure) {
                    if let change = try plan(knob, record, ResourceRow()) { changes.append(change) }
                } catch {
                    // Nothing is set for the other one before that.
                    if error.isExhaustion { continue }
                }
                weights[knob] = nil
            }
            guard let cgroup else { continue }
            do throws(KernelFailure) {
                let record: CgroupRecord
                if let known = weights[knob] {
                    record = known
                } else {
                    record = try weightRecord(of: cgroup, knob)
                }
                if let change = try plan(knob, record, row) { changes.append(change) }
            } catch {
                noteShortage(error)
                if weights[knob] == nil, lacking.insert(knob).inserted { note(.failed(error)) }
            }
        }
        return changes
    }

    mutating func carryOut(_ changes: [WeightChange]) {
        // The original value of a former cgroup is not restored.
        var owing: Set<ResourceKnob> = []
        for change in changes where !owing.contains(change.knob) {
            do throws(KernelFailure) {
                try write(change)
            } catch {
                isAsPlanned = false
                // Another program's value is noted by the next plan.
                if !change.before.hasFailed, error.errno != EBUSY { note(.failed(error)) }
                noteShortage(error)
                if weights[change.knob]?.directory != change.before.directory {
                    guard error.isExhaustion else { continue }
                    owing.insert(change.knob)
                }
                var record = change.before
                record.hasFailed = true
                weights[change.knob] = record
            }
        }
    }

    /// The cgroup whose memory we have protected; nil: none.
    public var protectedCgroup: String? {
        guard let record = weights[.memoryLow], !record.isLeft, record.written != record.original else {
            return nil
        }
        return record.directory
    }

    private func weightRecord(
        of directory: String, _ knob: ResourceKnob
    ) throws(KernelFailure) -> CgroupRecord {
        let cgroup = CgroupShares(directory: directory)
        let inode = try cgroup.inode()
        let present = try read(knob, cgroup)
        return CgroupRecord(directory: directory, inode: inode, original: present, written: present)
    }

    /// Throws if the cgroup may be there, and cannot be read.
    private mutating func plan(
        _ knob: ResourceKnob, _ known: CgroupRecord, _ row: ResourceRow
    ) throws(KernelFailure) -> WeightChange? {
        var record = known
        weights[knob] = record
        guard let present = try present(knob, record) else {
            weights[knob] = nil
            return nil
        }
        if record.isLeft { return nil }
        let value = row.value(knob, from: record.original)
        if present != record.written, present == record.original, present == value {
            // Whoever has restored it, there is nothing to do: `Reclaimer` lifts a limit before it ends an application.
            record.written = present
            weights[knob] = record
            return nil
        }
        if present != record.written {
            note(.changedByOthers(knob, of: record.directory, from: record.written, to: present))
            record.isLeft = true
            record.written = present
            weights[knob] = record
            return nil
        }
        guard value != present else { return nil }
        let change = WeightChange(knob: knob, value: value, before: record)
        record.written = value
        weights[knob] = record
        return change
    }

    /// nil: the cgroup is gone. One of the same name is another.
    private mutating func present(
        _ knob: ResourceKnob, _ record: CgroupRecord
    ) throws(KernelFailure) -> Int32? {
        let cgroup = CgroupShares(directory: record.directory)
        do throws(KernelFailure) {
            return try cgroup.inode() == record.inode ? read(knob, cgroup) : nil
        } catch {
            if error.isNoSuchCgroup { return nil }
            noteShortage(error)
            if !record.hasFailed { note(.failed(error)) }
            weights[knob]?.hasFailed = true
            throw error
        }
    }

    func read(_ knob: ResourceKnob, _ cgroup: CgroupShares) throws(KernelFailure) -> Int32 {
        switch knob {
        case .cpuWeight: try cgroup.cpu()
        case .cpuQuota: try cgroup.cpuQuota()
        case .memoryLow: try cgroup.memoryLow()
        case .ioWeight, .nice, .io, .oom: try cgroup.io()
        }
    }

    private func write(_ change: WeightChange) throws(KernelFailure) {
        let cgroup = CgroupShares(directory: change.before.directory)
        // The plan may have waited, and the cgroup may be another by now, or have another program's value.
        guard try cgroup.inode() == change.before.inode else {
            throw KernelFailure(operation: "write", subject: cgroup.directory, errno: ENOENT)
        }
        guard try read(change.knob, cgroup) == change.before.written else {
            throw KernelFailure(operation: "write", subject: cgroup.directory, errno: EBUSY)
        }
        switch change.knob {
        case .cpuWeight: try cgroup.set(cpu: change.value)
        case .cpuQuota: try cgroup.set(cpuQuota: change.value)
        case .memoryLow: try cgroup.set(memoryLow: change.value)
        case .ioWeight, .nice, .io, .oom: try cgroup.set(io: change.value)
        }
    }
}

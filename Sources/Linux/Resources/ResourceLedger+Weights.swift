import Glibc

extension ResourceLedger {
    /// A weight to be written, and the record before that.
    struct WeightChange: Sendable {
        let knob: ResourceKnob
        let value: Int32
        let before: CgroupRecord
    }

    /// Looks at the cgroup and returns what is to be written. The records already hold the values after that.
    mutating func planWeights(
        _ row: ResourceRow, _ weighable: String?, _ protectable: String?
    ) -> [WeightChange] {
        var changes: [WeightChange] = []
        for knob in ResourceKnob.ofCgroups where row.says(knob) || weights[knob] != nil {
            let cgroup = knob == .memoryLow ? protectable : weighable
            if let record = weights[knob], record.directory != cgroup {
                // The application has another cgroup now, or none: this one gets its own value back.
                if let change = plan(knob, record, ResourceRow()) { changes.append(change) }
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
                if let change = plan(knob, record, row) { changes.append(change) }
            } catch {
                if lacking.insert(knob).inserted { note(.failed(error)) }
            }
        }
        return changes
    }

    mutating func carryOut(_ changes: [WeightChange]) {
        for change in changes {
            do throws(KernelFailure) {
                try write(change)
            } catch {
                if !change.before.hasFailed { note(.failed(error)) }
                guard weights[change.knob]?.directory == change.before.directory else { continue }
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

    private mutating func plan(
        _ knob: ResourceKnob, _ known: CgroupRecord, _ row: ResourceRow
    ) -> WeightChange? {
        let cgroup = CgroupShares(directory: known.directory)
        guard (try? cgroup.inode()) == known.inode, let present = try? read(knob, cgroup) else {
            // The cgroup is gone; one of the same name is another.
            weights[knob] = nil
            return nil
        }
        var record = known
        weights[knob] = record
        if record.isLeft { return nil }
        if present != record.written {
            note(.changedByOthers(knob, of: record.directory, from: record.written, to: present))
            record.isLeft = true
            record.written = present
            weights[knob] = record
            return nil
        }
        let value = row.value(knob, from: record.original)
        guard value != present else { return nil }
        let change = WeightChange(knob: knob, value: value, before: record)
        record.written = value
        weights[knob] = record
        return change
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
        switch change.knob {
        case .cpuWeight: try cgroup.set(cpu: change.value)
        case .cpuQuota: try cgroup.set(cpuQuota: change.value)
        case .memoryLow: try cgroup.set(memoryLow: change.value)
        case .ioWeight, .nice, .io, .oom: try cgroup.set(io: change.value)
        }
    }
}

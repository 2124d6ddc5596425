extension Proc {
    /// A process that works in the foreground of a terminal whose session one of `pids` leads: a command that a shell
    /// waits for, the command of a script, or a leader that computes. A leader alone that waits, such as a shell at its
    /// prompt or an editor, does not count. nil: there is no such process.
    ///
    /// Throws a `LookLimit` when the budget is spent.
    public func foregroundJob(
        of pids: [Int32], _ budget: inout LookBudget
    ) throws(LookLimit) -> Int32? {
        var leaders: [Int32: Stat] = [:]
        var others: [Stat] = []
        for pid in pids {
            try budget.openFile()
            guard let stat = try? stat(pid), stat.terminal != 0 else { continue }
            if stat.session == pid { leaders[pid] = stat } else { others.append(stat) }
        }
        for leader in leaders.values where leader.isInForeground && leader.state == .running {
            return leader.pid
        }
        for other in others
        where other.isInForeground && leaders[other.session]?.terminal == other.terminal && !other.isZombie {
            return other.pid
        }
        return nil
    }
}

extension Proc.Stat {
    fileprivate var isInForeground: Bool { foreground == group }
    fileprivate var isZombie: Bool { state == .zombie || state == .dead }
}

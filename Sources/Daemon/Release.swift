public import AppStateBus
import Glibc
import LifeCycle
import Linux

extension RuntimeState.Found {
    /// Thaws and continues what is held, and says what came of it.
    func release(
        proc: Proc, sparing: ProcessIdentity? = nil, isForeign: (ProcessIdentity) -> Bool
    ) -> Holding.Release {
        let hierarchy = try? UnifiedHierarchy.find(proc: proc)
        var held = holding
        if mayHoldMore, let hierarchy, let owner {
            held.freeze = Holding.Freeze.found(
                of: owner.main, user: owner.user, proc: proc, in: hierarchy)
        }
        return held.release(proc: proc, hierarchy: hierarchy, sparing: sparing, isForeign: isForeign)
    }

    /// Whose it is, as far as that is told.
    fileprivate var owner: (main: ProcessIdentity, user: UInt32)? {
        if let stop = holding.stop { return (stop.main, stop.user) }
        guard let record = application?.record,
            let main = record.understood("process", { ProcessID(&$0) }).first,
            let user = record.understood("user", { $0.number() as UInt32? }).first
        else { return nil }
        return (main.identity, user)
    }
}

/// `appstated --release`: lets go what a daemon has left behind that cannot be started again. It needs neither a bus nor
/// that daemon's configuration. The applications stay registered for the next daemon, without a hold.
public enum Release {
    /// - Returns: the exit status: 1 where something could not be let go.
    public static func run(runtimeDirectory: String, journal: Journal) -> Int32 {
        guard let state = RuntimeState(directory: runtimeDirectory, journal: journal) else { return 0 }
        let proc = Proc()
        let found = state.found()
        let boot = (try? proc.bootID()) ?? ""
        let mains = Set(found.compactMap { $0.owner?.main })
        var status: Int32 = 0
        for entry in found where boot.isEmpty || entry.boot.map({ $0 == boot }) ?? true {
            let release = entry.release(proc: proc) { mains.contains($0) }
            if let done = release.description {
                journal.log(.notice, "application \(entry.name) of a daemon that is gone: \(done)")
            }
            for failure in release.failures where !failure.isNoSuchProcess {
                status = 1
                journal.log(.warning, "application \(entry.name) of a daemon that is gone: \(failure)")
            }
            if let owner = entry.owner {
                var ledger = ResourceLedger(proc: proc, main: owner.main, owner: owner.user)
                ledger.adopt(state.resources(of: entry.name))
                ledger.putBack { mains.contains($0) }
            }
            if release.failures.isEmpty { state.noteReleased(entry) }
        }
        return status
    }
}

extension RuntimeState {
    /// What the next daemon is to know of an application that was let go: all but its holds.
    fileprivate func noteReleased(_ entry: Found) {
        guard entry.damage == nil, let number = entry.number, let former = entry.application?.record else {
            return remove(named: entry.name)
        }
        var record = former
        record.lines = former.lines.compactMap { line in
            switch line.key {
            case "hold", "freeze", "stop", "stopped-process": nil
            case "enforcement": Record.Line("enforcement", "none", "request")
            default: line
            }
        }
        writeResources(number, [])
        if write(number, record, Holding()) != nil { remove(named: entry.name) }
    }
}

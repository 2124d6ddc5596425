import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
public import Systemd

extension RuntimeState.Found {
    /// Thaws and continues the held cgroups and processes, and returns the result.
    func release(
        proc: Proc, sparing: ProcessIdentity? = nil, isForeign: (ProcessIdentity) -> Bool
    ) -> Holding.Outcome {
        let hierarchy = UnifiedHierarchy.find()
        var held = holding
        if let hierarchy { held.freeze = freeze(proc: proc, in: hierarchy) }
        return held.release(proc: proc, hierarchy: hierarchy, sparing: sparing, isForeign: isForeign)
    }

    /// The frozen cgroups of the application, as recorded, or as found if the records are damaged.
    private func freeze(proc: Proc, in hierarchy: UnifiedHierarchy) -> Holding.Freeze? {
        if let freeze = holding.freeze { return freeze }
        guard mayHoldMore, let owner else { return nil }
        return .found(of: owner.main, user: owner.user, proc: proc, in: hierarchy)
    }

    /// Thaws the cgroup that `release` could not thaw. Throws if that is still not possible.
    ///
    /// - Parameter isTaken: whether a cgroup is frozen for another application by now.
    /// - Returns: the cgroup that was thawed; nil: there is no longer a cgroup to thaw.
    func thaw(proc: Proc, isTaken: (Cgroup) -> Bool) throws(KernelFailure) -> Cgroup? {
        guard let hierarchy = UnifiedHierarchy.find(),
            let cgroup = freeze(proc: proc, in: hierarchy)?.cgroup(in: hierarchy), !isTaken(cgroup)
        else { return nil }
        do throws(KernelFailure) {
            guard try cgroup.wantsFrozen() else { return nil }
            _ = try cgroup.endFreeze()
            return cgroup
        } catch {
            if error.isNoSuchCgroup { return nil }
            throw error
        }
    }

    /// The values that were set for its processes and cgroups, and their original values.
    func left(in state: RuntimeState) -> RuntimeState.LeftResources {
        resources ?? state.resources(of: name)
    }

    /// Restores the original values of its living processes. Returns the messages to log.
    func giveBack(
        _ left: RuntimeState.LeftResources, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ResourceLedger.Note] {
        guard let owner = left.owner ?? owner, !left.entries.isEmpty else { return [] }
        var ledger = ResourceLedger(proc: proc, main: owner.main, owner: owner.user)
        ledger.adopt(left.entries)
        ledger.putBack(isForeign: isForeign)
        return ledger.takeNotes()
    }
}

/// `appstated --release`: releases the applications that a daemon left suspended if no daemon is going to be
/// started. It needs neither a bus nor that daemon's configuration. The applications stay registered
/// for the next daemon, without a hold.
public enum Release {
    /// - Returns: the exit status: 1 if something could not be released.
    public static func run(runtimeDirectory: String, journal: Journal) -> Int32 {
        // Without a directory there is nothing to release, and none is created.
        guard access(RuntimeState.first(of: runtimeDirectory), F_OK) == 0,
            let state = RuntimeState(directory: runtimeDirectory, journal: journal)
        else { return 0 }
        guard state.lock(alone: true) else {
            journal.log(.error, "a running daemon uses \(runtimeDirectory): nothing is released")
            return 1
        }
        return letGo(state, journal)
    }

    /// Answers the calls that wait on the bus for a daemon whose unit has failed.
    ///
    /// systemd refuses to start such a unit, but does not tell dbus-daemon, where each call would wait for 25 s. The
    /// bus delivers the calls to whoever gets the name.
    public static func refuseCalls() {
        do throws(BusFailure) {
            let bus = try Bus.system()
            guard try hasFailed(bus) else { return }
            let filter = try bus.addFilter { call in
                guard call.isMethodCall else { return false }
                bus.refuse(call, failed)
                return true
            }
            try bus.requestName(BusNames.service)
            while try bus.process() {}
            try bus.flush(until: EventLoop.clock + patienceWithBus)
            withExtendedLifetime(filter) {}
        } catch {
            // There is no bus, and so no call, or a daemon that was started by hand has the name.
        }
    }

    private static func hasFailed(_ bus: Bus) throws(BusFailure) -> Bool {
        let call = try bus.newCall(
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1/unit/appstated_2eservice",
            interface: "org.freedesktop.DBus.Properties", member: "Get")
        try call.append("org.freedesktop.systemd1.Unit")
        try call.append("ActiveState")
        let reply = try bus.call(call, timeout: patienceWithBus)
        return try reply.withEntered(.variant, "s") { () throws(BusFailure) in
            try reply.readString() == "failed"
        }
    }

    private static let patienceWithBus: UInt64 = 1_000_000
    private static let failed = MethodError(
        "org.freedesktop.systemd1.UnitFailed", "appstated has failed; see systemctl status appstated")

    static func letGo(_ state: RuntimeState, _ journal: Journal) -> Int32 {
        let proc = Proc()
        let found = state.found()
        let boot = (try? proc.bootID()) ?? ""
        // A process that is no longer an application may belong to another application.
        let mains = Set(found.lazy.filter { !$0.isRemoved }.compactMap { $0.owner?.main })
        let slices = SliceProtection(hierarchy: UnifiedHierarchy.find(), journal: journal)
        var status: Int32 = 0
        for entry in found where boot.isEmpty || entry.boot.map({ $0 == boot }) ?? true {
            let release = entry.release(proc: proc, sparing: entry.spared) { mains.contains($0) }
            if let done = release.description {
                journal.log(.notice, "application \(entry.name) of a daemon that has exited: \(done)")
            }
            if release.isHeld { status = 1 }
            for failure in release.failures where !failure.isNoSuchProcess {
                journal.log(.warning, "application \(entry.name) of a daemon that has exited: \(failure)")
            }
            let left = entry.left(in: state)
            var isRestored = true
            for note in entry.giveBack(left, proc: proc, isForeign: { mains.contains($0) }) {
                journal.log(.notice, "application \(entry.name) of a daemon that has exited: \(note)")
                // What is not wholly its user's, we do not restore.
                if case .failed(let failure) = note, failure.errno != EPERM { isRestored = false }
            }
            if !isRestored { status = 1 }
            slices.takeBack(left.entries)
            if !release.isHeld { state.noteReleased(entry, isRestored: isRestored) }
        }
        return status
    }
}

extension RuntimeState {
    /// The data about a released application that the next daemon needs: everything except its holds, and its original
    /// values unless they are restored.
    fileprivate func noteReleased(_ entry: Found, isRestored: Bool) {
        guard entry.damage == nil, let number = entry.number, let former = entry.application?.record else {
            if isRestored { remove(named: entry.name) }
            return
        }
        var record = former
        record.lines = former.lines.compactMap { line in
            switch line.key {
            case "hold": nil
            case "enforcement": Record.Line("enforcement", "none", "request")
            default: Holding.isOne(line) ? nil : line
            }
        }
        if isRestored { removeResources(number) }
        if write(number, record, Holding()) != nil { remove(named: entry.name) }
    }
}

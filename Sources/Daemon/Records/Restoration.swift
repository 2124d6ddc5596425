import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Takes over the applications of a killed daemon: at the same paths, in the same states, with the same
/// holds. Applications that cannot be taken over are resumed (§ 5).
extension Daemon {
    /// - Parameter stored: the pidfds that the service manager kept.
    func restore(
        from state: RuntimeState, _ stored: [(name: String, descriptor: Int32)]
    ) -> [ApplicationNumber] {
        let bus = (try? self.bus.id()) ?? ""
        let boot = (try? proc.bootID()) ?? ""
        state.begin(bus: bus, boot: boot)
        let found = state.found()
        let lastNumber = state.lastGivenNumber()
        resources.begin(after: found.map { $0.left(in: state) })
        var kept = Dictionary(stored.map { ($0.name, $0.descriptor) }) { old, _ in old }
        var adopted: [(number: ApplicationNumber, entry: RuntimeState.Found)] = []
        var dropped: [(entry: RuntimeState.Found, why: String?)] = []
        var replaced: [(entry: RuntimeState.Found, successor: ApplicationNumber)] = []
        var ended: [Record] = []
        let successors = Self.successors(found)
        for entry in found {
            // Records from before the last boot have no processes any longer.
            if let before = entry.boot, !boot.isEmpty, before != boot {
                state.remove(named: entry.name)
                continue
            }
            if entry.isRemoved || entry.damage == nil, let owner = entry.owner,
                let successor = successors[owner.main], successor != entry.number
            {
                giveOverResources(of: entry, to: successor, owner, state)
                replaced.append((entry, successor))
                continue
            }
            guard entry.damage == nil, let record = entry.takenOver else {
                dropped.append((entry, entry.damage))
                continue
            }
            do {
                if let number = try adopt(record, on: bus, state, &kept) {
                    adopted.append((number, entry))
                } else {
                    ended.append(record)
                    dropped.append((entry, nil))
                }
            } catch {
                dropped.append((entry, "\(error)"))
            }
        }
        // Only now is it known which others with the same id still run.
        for record in ended { noteEnd(record, &kept) }
        core.machine.continueNumbers(after: lastNumber ?? found.compactMap(\.number?.rawValue).max() ?? 0)
        // The limit of each extent is known only now.
        for (number, entry) in adopted {
            guard let application = table[number] else { continue }
            let holding = entry.heldFurther
            freezer.adopt(application, holding.hold)
            if holding.isEmpty, entry.holds != nil {
                let isForeign = core.machine.applications[number]?.stop.isSignalledByOthers == true
                letGo(entry, sparing: isForeign ? entry.owner?.main : nil)
            }
        }
        for (entry, why) in dropped { drop(entry, because: why, state) }
        for former in replaced {
            let isForeign = core.machine.applications[former.successor]?.stop.isSignalledByOthers == true
            release(former.entry, state, sparing: isForeign ? former.entry.owner?.main : nil)
        }
        resources.haveAdopted()
        for (name, descriptor) in kept {
            close(descriptor)
            Service.dropStored(name)
        }
        if let focus = state.focus(boot: boot) { core.machine.restoreFocus(focus) }
        for process in core.machine.reportedProcesses where !processes.isTracked(process) {
            do { try trackAgain(process) } catch { core.report(.exited(process, .unknown)) }
        }
        let isSameBus = adopted.allSatisfy { $0.entry.application?.record["bus"]?.fields == [bus] }
        for name in core.machine.connections where !isSameBus || !isStillThere(name) {
            core.report(.disconnected(name))
        }
        for (number, entry) in adopted {
            let isBeingReclaimed = core.application(number)?.isBeingReclaimed == true
            let effects = core.machine.reassert(
                number, isSignalled: freezer.isSignalled(number), isDying: isBeingReclaimed && isDying(entry),
                at: Self.now)
            executor.carryOut(effects)
            freezer.releaseUnheld(number)
        }
        return adopted.map(\.number)
    }

    /// Whether SIGKILL is known to have been sent to any of its processes. The main process is killed last.
    private func isDying(_ entry: RuntimeState.Found) -> Bool {
        let processes = entry.heldFurther.stopped.map(\.process) + (entry.owner.map { [$0.main] } ?? [])
        return processes.contains { (try? proc.isDying($0)) == true }
    }

    /// Finds stops, continuations, freezes and thaws by others since the previous daemon was killed. All of
    /// this is known before the first call is answered, because no caller waits for the loop yet.
    func lookAgain(at restored: [ApplicationNumber]) {
        guard !restored.isEmpty else { return }
        for number in restored { sensor.look(at: number) }
        sensor.rescan()
        journal.log(.info, "took over \(restored.count) applications of the previous daemon")
    }

    /// nil: its process has ended meanwhile.
    private func adopt(
        _ record: Record, on bus: String, _ state: RuntimeState, _ kept: inout [String: Int32]
    ) throws -> ApplicationNumber? {
        let process = try record.require("process") { ProcessID(&$0) }
        let application = try Registered(record)
        guard try takeUp(process, &kept) else { return nil }
        // On another bus, the name belongs to somebody else.
        let isSameBus = !bus.isEmpty && record["bus"]?.fields == [bus]
        if !isSameBus || !isAgent(application.launch?.agent, of: application.user) {
            application.launch?.agent = nil
        }
        do {
            let number = try core.machine.restore(record)
            // An application that was launched, or that could be found by its id before it entered its
            // sandbox, can still be found.
            application.isKnownByID =
                application.isToBeKept || application.launch != nil
                || isKnown(process.pid, by: application.id)
            if let keeper, let kept = application.toBeKept { application.isKept = keeper.begin(kept) }
            executor.enroll(application, adopting: state.resources(of: number.description).entries)
            processes.store(process)
            return number
        } catch {
            processes.forget(process)
            Service.dropStored(Processes.storedName(process))
            throw error
        }
    }

    /// Records the end of an application that ended while no daemon was there to see it.
    private func noteEnd(_ record: Record, _ kept: inout [String: Int32]) {
        guard let keeper, let application = try? Registered(record),
            let id = application.toBeKept
        else { return }
        let name = Processes.storedName(ProcessID(application.process))
        var status = ExitStatus.unknown
        if let stored = kept.removeValue(forKey: name) {
            status = PidFD.exitStatus(ofKept: Descriptor(owning: stored))
            Service.dropStored(name)
        }
        guard let ending = Machine.ending(of: record, ExitReason(status), status: status.number) else {
            return
        }
        keeper.end(id, ending, isCounted: false)
    }

    /// Watches a process again. Returns whether it lives.
    private func takeUp(_ process: ProcessID, _ kept: inout [String: Int32]) throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            let now = try proc.state(of: process.identity)
            guard now != .zombie, now != .dead else { return false }
            try trackAgain(process, kept.removeValue(forKey: Processes.storedName(process)))
            return true
        } catch {
            Service.dropStored(Processes.storedName(process))
            if error.isNoSuchProcess { return false }
            throw error
        }
    }

    /// Which application a process is, according to what was written down last.
    private static func successors(
        _ found: [RuntimeState.Found]
    ) -> [ProcessIdentity: ApplicationNumber] {
        var successors: [ProcessIdentity: ApplicationNumber] = [:]
        for entry in found where entry.damage == nil {
            guard let number = entry.number, let main = entry.owner?.main else { continue }
            successors[main] = number
        }
        return successors
    }

    /// The process had registered itself again, and the daemon was killed before that was complete.
    private func giveOverResources(
        of entry: RuntimeState.Found, to successor: ApplicationNumber, _ owner: RuntimeState.Owner,
        _ state: RuntimeState
    ) {
        guard state.resources(of: successor.description).entries.isEmpty else { return }
        let left = entry.left(in: state)
        _ = state.writeResources(successor, owner, left.entries)
    }

    /// Uses the pidfd that the service manager kept, if there is one; otherwise opens one and compares the
    /// start time.
    private func trackAgain(_ process: ProcessID, _ kept: Int32? = nil) throws(KernelFailure) {
        if let kept, let descriptor = try? PidFD(adopting: Descriptor(owning: kept)),
            (try? descriptor.pid()) == process.pid
        {
            return try processes.track(process, descriptor)
        }
        try track(process)
    }

    /// Whether a connection that had a part in an application still exists, on the same bus.
    private func isStillThere(_ name: ConnectionName) -> Bool {
        (try? connections.connection(named: name)) != nil
    }

    private func isAgent(_ name: ConnectionName?, of user: UInt32) -> Bool {
        guard let name, let connection = try? connections.connection(named: name) else { return false }
        return connection.user == user
    }

    /// Ensures that no process stays stopped for a forgotten reason, or keeps changed resources.
    ///
    /// - Parameter why: why it cannot be taken over; nil: it has ended.
    private func drop(_ entry: RuntimeState.Found, because why: String?, _ state: RuntimeState) {
        for note in entry.giveBack(entry.left(in: state), proc: proc, isForeign: table.isForeign) {
            journal.log(.notice, "resources of application \(entry.name) of the previous daemon: \(note)")
        }
        let done = release(entry, state, sparing: entry.spared)
        if entry.isRemoved {
            guard let done else { return }
            return journal.log(
                .info, "application \(entry.name) was unregistered with the previous daemon: \(done)")
        }
        guard let why else { return }
        journal.log(
            .error,
            "application \(entry.name) of the previous daemon cannot be taken over: \(why); it runs on unmanaged"
                + (done.map { ", " + $0 } ?? ""))
    }

    /// Releases its processes and forgets it. Returns a description of the release; nil: nothing was held.
    @discardableResult
    private func release(
        _ entry: RuntimeState.Found, _ state: RuntimeState, sparing spared: ProcessIdentity?
    ) -> String? {
        let release = letGo(entry, sparing: spared)
        state.remove(named: entry.name, isHeld: release.isHeld)
        if release.mayBeFrozen { thawLater(entry, state, isLast: release.failures.count == 1) }
        return release.description
    }

    /// - Parameter isLast: nothing else is held.
    private func thawLater(_ entry: RuntimeState.Found, _ state: RuntimeState, isLast: Bool) {
        thaws.schedule(entry.name) { [weak self] in
            guard let self else { return true }
            do throws(KernelFailure) {
                let thawed = try entry.thaw(proc: proc) { cgroup in
                    self.table.all.contains { self.table.frozenCgroup(of: $0) == cgroup }
                }
                if let thawed {
                    journal.log(
                        .notice, "application \(entry.name) of the previous daemon: thawed \(thawed)")
                }
            } catch {
                return false
            }
            if isLast { state.remove(named: entry.name) }
            return true
        }
    }

    @discardableResult
    private func letGo(_ entry: RuntimeState.Found, sparing spared: ProcessIdentity?) -> Holding.Outcome {
        let release = entry.release(proc: proc, sparing: spared, isForeign: table.isForeign)
        for failure in release.failures {
            journal.log(
                .warning, "cannot resume application \(entry.name) of the previous daemon: \(failure)")
        }
        return release
    }
}

extension ProcessID {
    var identity: ProcessIdentity { ProcessIdentity(pid: pid, startTime: startTime) }
}

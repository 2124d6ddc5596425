import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Takes over the applications of a killed daemon: at the same paths, in the same states, with the same
/// holds. Applications that cannot be taken over are resumed (§ 5).
extension Daemon {
    func restore(from state: RuntimeState) throws(BusFailure) -> [ApplicationNumber] {
        var found: [RuntimeState.Found] = []
        var forgotten: [String] = []
        let names: [String]
        do throws(KernelFailure) {
            names = try state.found()
        } catch {
            // The next daemon, or the unit, can do more than one that knows of nothing.
            throw BusFailure(operation: error.operation, subject: error.subject, errno: error.errno)
        }
        for name in names {
            do { found.append(try state.read(name)) } catch { decline(name, error, &forgotten) }
        }
        // A process that has registered itself again has two, if the daemon was killed before it had removed the first.
        let latest = Dictionary(found.filter(\.isApplication).map { ($0.main, $0.name) }) { $1 }
        var adopted: [(number: ApplicationNumber, entry: RuntimeState.Found)] = []
        for entry in found {
            if let main = entry.main, let successor = latest[main], successor != entry.name {
                forgotten.append(entry.name)
                continue
            }
            do {
                if let number = try adopt(entry, state) {
                    adopted.append((number, entry))
                } else {
                    forgotten.append(entry.name)
                }
            } catch {
                decline(entry.name, error, &forgotten)
            }
        }
        let remembered = state.daemon()
        let last = remembered.understood("last") { $0.number() as UInt32? }.first
        core.machine.continueNumbers(after: last ?? adopted.map(\.number.rawValue).max() ?? 0)
        // The limit of each extent is known only now.
        for (number, entry) in adopted {
            if let application = table[number] { freezer.adopt(application, entry.hold) }
        }
        for name in forgotten {
            if let entry = found.first(where: { $0.name == name }), let user = entry.user {
                resources.restore(entry.record, name: name, owner: user)
            }
            forget(name, state)
        }
        resources.haveAdopted()
        for process in core.machine.reportedProcesses where !processes.isTracked(process) {
            do { try track(process) } catch { core.report(.exited(process, .unknown)) }
        }
        let isSameBus = adopted.allSatisfy { $0.entry.record["bus"]?.fields == [records.bus] }
        for name in core.machine.connections where !isSameBus || !isStillThere(name) {
            core.report(.disconnected(name))
        }
        let living = adopted.map(\.number).filter { number in
            table[number].map { processes.isTracked(ProcessID($0.process)) } == true
        }
        for number in living {
            let isBeingReclaimed = core.application(number)?.isBeingReclaimed == true
            let effects = core.machine.reassert(
                number, isSignalled: freezer.isSignalled(number),
                isDying: isBeingReclaimed && isDying(number),
                at: Self.now)
            executor.carryOut(effects)
            freezer.releaseUnheld(number)
        }
        return living
    }

    /// Whether SIGKILL is known to have been sent to any of its processes. The main process is killed last.
    private func isDying(_ number: ApplicationNumber) -> Bool {
        guard let main = table[number]?.process else { return false }
        let processes = [main] + Extent.members(of: main, proc: proc, isForeign: table.isForeign)
        return processes.contains { (try? proc.isDying($0)) == true }
    }

    /// Finds stops, continuations, freezes and thaws by others since the previous daemon was killed. All of
    /// this is known before the first call is answered, because no caller waits for the loop yet.
    func reread(_ restored: [ApplicationNumber]) {
        guard !restored.isEmpty else { return }
        for number in restored { sensor.readStop(of: number) }
        sensor.rescan()
        journal.log(.info, "took over \(restored.count) applications of the previous daemon")
    }

    // MARK: Applications that are taken over

    /// Registers it as it was. If its process has ended meanwhile, that is the next fact. nil: it was removed, and only its
    /// hold is left.
    private func adopt(_ entry: RuntimeState.Found, _ state: RuntimeState) throws -> ApplicationNumber? {
        let record = entry.record
        guard entry.isWhole else { throw Record.Flaw("end", nil) }
        guard let number = record["number"] else { return nil }
        guard number.fields == [entry.name] else { throw Record.Flaw("number", number.fields.first) }
        let process = try record.require("process") { ProcessID(&$0) }
        let application = try Registered(record)
        // On another bus, the name belongs to somebody else.
        if record["bus"]?.fields != [records.bus] || !isAgent(application.launch?.agent, of: application.user)
        {
            application.launch?.agent = nil
        }
        let ending = try recover(process)
        do {
            let number = try core.machine.restore(record)
            // An application that was launched, or that could be found by its id before it entered its
            // sandbox, can still be found.
            application.isKnownByID =
                application.isToBeKept || application.launch != nil
                || isKnown(process.pid, by: application.id)
            executor.enroll(application, isNew: false)
            if let ending { core.report(.exited(process, ExitReason(ending), status: ending.number)) }
            return number
        } catch {
            processes.forget(process)
            throw error
        }
    }

    /// Watches a process again. Returns how it has ended meanwhile; nil: it lives.
    private func recover(_ process: ProcessID) throws(KernelFailure) -> ExitStatus? {
        do throws(KernelFailure) {
            let state = try proc.state(of: process.identity)
            // The kernel shows how it has ended until its parent has waited for it.
            if state == .zombie || state == .dead { return try PidFD(pid: process.pid).exitStatus() }
            try track(process)
            return nil
        } catch {
            guard error.isNoSuchProcess else { throw error }
            return .unknown
        }
    }

    /// Whether a connection that had a part in an application still exists, on the same bus.
    private func isStillThere(_ name: ConnectionName) -> Bool {
        (try? connections.connection(named: name)) != nil
    }

    private func isAgent(_ name: ConnectionName?, of user: UInt32) -> Bool {
        guard let name, let connection = try? connections.connection(named: name) else { return false }
        return connection.user == user
    }

    // MARK: What is not

    private func decline(_ name: String, _ why: any Error, _ forgotten: inout [String]) {
        journal.log(
            .error,
            "application \(name) of the previous daemon cannot be taken over: \(why); it runs on unmanaged")
        forgotten.append(name)
    }

    /// Ends the hold of an application that is not taken over, and removes its file.
    private func forget(_ name: String, _ state: RuntimeState) {
        attemptToThaw(name) { [unowned self] () throws(KernelFailure) in
            let entry = try state.read(name)
            let successor = entry.main.flatMap { table[$0] }
            let stop = successor.flatMap { core.application($0.number)?.stop }
            if let hold = entry.hold, hold != successor?.hold, !freezes.contains(hold),
                let done = try entry.release(
                    sparingMain: entry.isStoppedByOthers || stop?.isSignalledByOther == true, proc: proc,
                    isForeign: table.isForeign)
            {
                journal.log(.notice, "application \(name) of the previous daemon: \(done)")
            }
            state.remove(named: name)
        }
    }

    /// Thaws what the previous daemon had frozen and this one has not taken over, even if all files are lost.
    func thawMarked() {
        attemptToThaw("cgroups") { [unowned self] () throws(KernelFailure) in
            let (thawed, failure) = Hold.thawMarked(except: freezes)
            for cgroup in thawed { journal.log(.notice, "thawed \(cgroup), which a daemon had left frozen") }
            if let failure { throw failure }
        }
    }

    /// The freezes of this daemon.
    private var freezes: Set<Hold> { Set(table.all.compactMap(\.hold)).subtracting([.signalled]) }

    /// Where descriptors or memory are lacking, it is attempted again.
    private func attemptToThaw(_ name: String, _ body: @escaping () throws(KernelFailure) -> Void) {
        do throws(KernelFailure) {
            try body()
        } catch {
            journal.log(.warning, "cannot resume what the previous daemon held: \(error)")
            thaws.schedule(name) {
                do throws(KernelFailure) {
                    try body()
                    return true
                } catch {
                    return false
                }
            }
        }
    }
}

extension ProcessID {
    var identity: ProcessIdentity { ProcessIdentity(pid: pid, startTime: startTime) }
}

import Glibc
import LifeCycle
import Linux
import Systemd

/// The original values of the applications' resources:
///
///     RUNTIME_DIRECTORY/resources/N      what gives the processes of application N their resources back
extension RuntimeState {
    /// The owner of processes whose resources must be restored.
    struct Owner {
        let main: ProcessIdentity
        let user: UInt32
    }

    /// The values that restore the resources of an application's processes.
    struct LeftResources {
        var owner: Owner?
        var entries: [String] = []
    }

    var resources: String { directory + "/resources" }

    /// Records the values that restore the resources of an application's processes; if there are none, no
    /// file is left. Returns whether they are recorded now.
    func writeResources(_ number: ApplicationNumber, _ owner: Owner?, _ entries: [String]) -> Bool {
        guard !entries.isEmpty else {
            removeResources(named: number.description)
            return true
        }
        let failure = attempt { () throws(KernelFailure) in
            var record = Record()
            if let owner { record.add("owner", [String(owner.user)] + ProcessID(owner.main).fields) }
            record.lines += entries.map { Record.Line("resource", $0) }
            try WholeFile.write(RecordFile.bytes(record), to: "\(resources)/\(number)")
        }
        return failure == nil
    }

    /// The resources of all its processes are restored.
    func removeResources(named name: String) {
        attempt { () throws(KernelFailure) in try WholeFile.remove("\(resources)/\(name)") }
    }

    /// What `writeResources` wrote.
    func resources(of name: String) -> LeftResources {
        guard let bytes = try? WholeFile.read("\(resources)/\(name)") else { return LeftResources() }
        let record = RecordFile.read(bytes).record
        let owner = record.understood("owner") { fields -> Owner? in
            guard let user: UInt32 = fields.number(), let main = ProcessID(&fields) else { return nil }
            return Owner(main: main.identity, user: user)
        }.first
        return LeftResources(owner: owner, entries: record.understood("resource") { $0.text() })
    }

    /// The process has registered itself again.
    func handOverResources(from name: String, to successor: String) {
        guard resources(of: successor).entries.isEmpty else { return }
        rename("\(resources)/\(name)", "\(resources)/\(successor)")
    }

    /// All applications of which `writeResources` wrote anything.
    func leftResources() -> [(name: String, left: LeftResources)] {
        ((try? names(in: resources)) ?? []).map { ($0, resources(of: $0)) }
    }
}

extension RuntimeState.LeftResources {
    /// Restores the original values of its living processes. Returns the messages to log.
    func giveBack(proc: Proc, isForeign: (ProcessIdentity) -> Bool) -> [ResourceLedger.Note] {
        guard let owner, !entries.isEmpty else { return [] }
        var ledger = ResourceLedger(proc: proc, main: owner.main, owner: owner.user)
        ledger.adopt(entries)
        ledger.putBack(isForeign: isForeign)
        return ledger.takeNotes()
    }
}

extension Daemon {
    /// Restores the values of applications that were not taken over.
    func giveBackResources(_ state: RuntimeState) {
        for (name, left) in state.leftResources() {
            if let number = UInt32(name), table[ApplicationNumber(number)] != nil { continue }
            for note in left.giveBack(proc: proc, isForeign: table.isForeign) {
                journal.log(.notice, "resources of application \(name) of the previous daemon: \(note)")
            }
            state.removeResources(named: name)
        }
    }
}

extension Release {
    static func areResourcesRestored(
        _ state: RuntimeState, _ mains: Set<ProcessIdentity>, _ journal: Journal
    ) -> Bool {
        let proc = Proc()
        let slices = SliceProtection(hierarchy: UnifiedHierarchy.find(), journal: journal)
        var isDone = true
        for (name, left) in state.leftResources() {
            var isRestored = true
            for note in left.giveBack(proc: proc, isForeign: mains.contains) {
                journal.log(.notice, "application \(name) of a daemon that has exited: \(note)")
                // What is not wholly its user's, we do not restore.
                if case .failed(let failure) = note, failure.errno != EPERM { isRestored = false }
            }
            slices.takeBack(left.entries)
            if isRestored { state.removeResources(named: name) } else { isDone = false }
        }
        return isDone
    }
}

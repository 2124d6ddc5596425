import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Taking up what a killed daemon left: the same applications at the same paths, in the same states, with the
/// same holds; what cannot be taken up is resumed (§ 5).
extension Daemon {
    /// - Parameter stored: the pidfds that the service manager kept.
    func restore(
        from state: RuntimeState, _ stored: [(name: String, descriptor: Int32)]
    ) -> [ApplicationNumber] {
        core.machine.skipNumbers(through: state.lastGivenNumber())
        let bus = (try? self.bus.id()) ?? ""
        let boot = (try? proc.bootID()) ?? ""
        let origin = state.origin()
        let found = state.found()
        state.noteBus(bus, boot: boot)
        var kept = Dictionary(stored.map { ($0.name, $0.descriptor) }) { old, _ in old }
        var adopted: [(number: ApplicationNumber, record: Record)] = []
        var replaced: [(name: String, record: Record, successor: ApplicationNumber)] = []
        let successors = Self.successors(found)
        for entry in found {
            switch entry {
            case .whole(let name, let record):
                // What was before the last boot has no processes any more.
                guard origin?.boot == boot else {
                    state.remove(named: name)
                    continue
                }
                if let successor = record["process"].flatMap({ successors[$0] }), successor.name != name {
                    giveOverResources(name, to: successor.number, state)
                    replaced.append((name, record, successor.number))
                    continue
                }
                do {
                    if let number = try adopt(record, state, &kept) {
                        adopted.append((number, record))
                    } else {
                        release(record)
                        state.remove(named: name)
                    }
                } catch {
                    abandon(name, "\(error)", record, state)
                }
            case .damaged(let name, let why, let rest):
                abandon(name, why, rest, state)
            }
        }
        // Only now is it known where each extent ends.
        for (number, record) in adopted {
            if let application = executor.registered[number] { stops.adopt(application, record) }
        }
        for former in replaced {
            let isForeign = machine.applications[former.successor]?.foreignStop != nil
            release(former.record, sparingMain: isForeign)
            state.remove(named: former.name)
        }
        for (name, descriptor) in kept {
            close(descriptor)
            Service.dropStored(name)
        }
        if origin?.boot == boot, let focus = state.focus() { core.machine.restoreFocus(focus) }
        for process in machine.reportedProcesses where !processes.isTracked(process) { trackAgain(process) }
        for name in machine.connections where origin?.bus != bus || !isStillThere(name) {
            core.report(.disconnected(name))
        }
        for (number, _) in adopted { take(core.machine.reassert(number, at: Self.now)) }
        return adopted.map(\.number)
    }

    /// What others have stopped, continued, frozen or thawed since the daemon before was killed.
    func lookAgain(at restored: [ApplicationNumber]) {
        guard !restored.isEmpty else { return }
        for number in restored { stops.freezeChanged(number) }
        sensor.rescan()
        journal.log(.info, "took up \(restored.count) applications of the daemon before")
    }

    /// nil: its process has ended meanwhile.
    private func adopt(
        _ record: Record, _ state: RuntimeState, _ kept: inout [String: Int32]
    ) throws -> ApplicationNumber? {
        let process = try record.require("process", ProcessID.init(recorded:))
        guard (try? proc.identity(of: process.pid)) == process.identity,
            let now = try? proc.state(of: process.identity), now != .zombie, now != .dead
        else { return nil }
        let application = try Registered(record, suspender: stops.suspender)
        let number = try core.machine.restore(record)
        executor.enroll(application)
        resources.adopt(state.resources(of: number), for: application)
        trackAgain(process, kept.removeValue(forKey: Processes.storedName(process)))
        processes.store(process)
        return number
    }

    /// Who a process is, by what was written down last.
    private static func successors(
        _ found: [RuntimeState.Found]
    ) -> [String: (name: String, number: ApplicationNumber)] {
        var successors: [String: (name: String, number: ApplicationNumber)] = [:]
        for case .whole(let name, let record) in found {
            guard let process = record["process"], let number = UInt32(name) else { continue }
            successors[process] = (name, ApplicationNumber(number))
        }
        return successors
    }

    /// Its process had registered itself in its place, and the daemon was killed before it had ended.
    private func giveOverResources(_ name: String, to successor: ApplicationNumber, _ state: RuntimeState) {
        guard let number = UInt32(name), state.resources(of: successor).isEmpty else { return }
        state.writeResources(successor, state.resources(of: ApplicationNumber(number)))
    }

    /// By the pidfd that the service manager kept, where it did; else opened again, and its start time compared.
    private func trackAgain(_ process: ProcessID, _ kept: Int32? = nil) {
        do {
            if let kept, let descriptor = try? PidFD(adopting: Descriptor(owning: kept)),
                (try? descriptor.pid()) == process.pid
            {
                return try processes.track(process, descriptor)
            }
            try track(process)
        } catch {
            core.report(.exited(process, .unknown))
        }
    }

    /// Whether a connection that had a part in an application lives on, on the same bus.
    private func isStillThere(_ name: ConnectionName) -> Bool {
        (try? connections.connection(named: name)) != nil
    }

    /// Nothing stays stopped for a reason that nobody remembers.
    private func abandon(_ name: String, _ why: String, _ rest: Record, _ state: RuntimeState) {
        journal.log(
            .error,
            "application \(name) of the daemon before cannot be taken up: \(why); it runs on unmanaged")
        release(rest)
        state.remove(named: name)
    }

    private func release(_ record: Record, sparingMain: Bool = false) {
        guard let process = record["process"].flatMap(ProcessID.init(recorded:)),
            let user = record["user"].flatMap({ UInt32($0) })
        else { return }
        stops.release(process.identity, user: user, record, sparingMain: sparingMain)
    }
}

extension ProcessID {
    var identity: ProcessIdentity { ProcessIdentity(pid: pid, startTime: startTime) }
}

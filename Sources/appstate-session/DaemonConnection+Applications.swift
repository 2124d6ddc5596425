import AppStateBus
import AppStateContract
import SessionRules
import Systemd

/// What the daemon tells about the registered applications. Only its own signals are accepted: any connection may
/// address a signal to us directly.
extension DaemonConnection {
    func applicationMatches(on bus: Bus) throws(BusFailure) -> [Slot] {
        [
            try match(ManagerSignal.applicationAdded.rawValue, on: bus) { [unowned self] message in
                let path = try message.readObjectPath()
                let entry = Applications.Entry(name: try message.readString(), path: path)
                if let pid = Int32(exactly: try message.readUInt32()) { applications.add(entry, pid) }
            },
            try match(ManagerSignal.applicationRemoved.rawValue, on: bus) { [unowned self] message in
                let path = try message.readObjectPath()
                let id = try message.readString()
                guard let pid = Int32(exactly: try message.readUInt32()) else { return }
                switch ExitReason(rawValue: try message.readString()) {
                case .unregistered?: delegate?.unregistered(pid)
                case .unresponsive?: delegate?.ended(id, path, nil, try message.readDictionary())
                default: break
                }
                questions[pid] = nil
                applications.remove(pid)
            },
            try match(ManagerSignal.stateChanged.rawValue, on: bus) { [unowned self] message in
                try message.skip("os")
                guard let pid = Int32(exactly: try message.readUInt32()) else { return }
                let from = LifeCycleState(rawValue: try message.readString())
                let to = LifeCycleState(rawValue: try message.readString())
                let restsInactive = mayBeSuspended(applications.entries[pid]?.path, in: .inactive)
                applications.move(pid, from: from, to: to, restsInactive: restsInactive)
            },
            try match(ApplicationSignal.didEnterBackground.rawValue, ofApplications: true, on: bus) {
                [unowned self] message in
                guard let pid = message.path.flatMap(applications.process(at:)) else { return }
                try message.skip("t")
                // 0: the application is not suspended as long as its objection lasts.
                if try message.readUInt64() == 0 { askSuspension(of: pid) } else { applications.wait(pid) }
            },
            try match(ManagerSignal.applicationReclaimed.rawValue, on: bus) { [unowned self] message in
                let path = try message.readObjectPath()
                let id = try message.readString()
                try message.skip("u")
                let bytes = try message.readUInt64()
                try message.skip("t")
                delegate?.ended(id, path, bytes, try message.readDictionary())
            },
            try match(ManagerSignal.resync.rawValue, on: bus) { [unowned self] _ in
                journal.log(
                    .info,
                    "\(BusNames.service) has withheld signals: the list of applications is requested again")
                listAgain()
            },
        ]
    }

    private func match(
        _ signal: String, ofApplications: Bool = false, on bus: Bus,
        _ handler: @escaping (borrowing Message) throws -> Void
    ) throws(BusFailure) -> Slot {
        let object =
            ofApplications
            ? "path_namespace='\(BusNames.applications)',interface='\(BusNames.application)'"
            : "path='\(BusNames.root)',interface='\(BusNames.manager)'"
        return try bus.match(
            "type='signal',sender='\(BusNames.service)',\(object),member='\(signal)'",
            failed: { [unowned self] in deaf($0) },
            handler: { [unowned self] message in
                if message.sender == daemon { try? handler(message) }
            })
    }

    /// Takes the answer to `ListApplications`.
    func take(listIn message: borrowing Message) {
        guard let rows = try? Self.rows(of: message) else { return }
        let former = applications.isKnown ? applications.registered : []
        for pid in former where rows[pid] == nil { delegate?.unregistered(pid) }
        let waiting = rows.filter { mayBeSuspended($0.value.entry.path, in: $0.value.state) }
        applications.replace(rows, waiting: Set(waiting.keys))
    }

    private static func rows(
        of message: borrowing Message
    ) throws(BusFailure) -> [Int32: (entry: Applications.Entry, state: LifeCycleState?)] {
        var rows: [Int32: (entry: Applications.Entry, state: LifeCycleState?)] = [:]
        _ = try message.enter(.array, "(osuus)")
        while try message.enter(.struct, "osuus") {
            let path = try message.readObjectPath()
            let name = try message.readString()
            let pid = Int32(exactly: try message.readUInt32())
            try message.skip("u")
            let state = LifeCycleState(rawValue: try message.readString())
            try message.exit()
            if let pid { rows[pid] = (Applications.Entry(name: name, path: path), state) }
        }
        try message.exit()
        return rows
    }

    // MARK: What is about to be suspended

    /// The daemon has another rule for an application, which may be suspended from now on.
    func configured(_ path: String) {
        guard let pid = applications.process(at: path) else { return }
        if mayBeSuspended(path, in: applications.states[pid]), !applications.isWaiting(pid) {
            askSuspension(of: pid)
        }
    }

    /// Whether policy suspends an application in this state, if it suspends it at all.
    private func mayBeSuspended(_ path: String?, in state: LifeCycleState?) -> Bool {
        guard state == .inactive else { return state == .background }
        return path.flatMap { rules[$0] }??.rule.suspendWhen == .inactive
    }

    /// Asks whether policy may suspend the application once there is no objection. No signal announces that moment.
    private func askSuspension(of pid: Int32) {
        guard let bus, let path = applications.entries[pid]?.path else { return }
        do throws(BusFailure) {
            let question = try bus.newPropertyCall(
                ApplicationProperty.suspension.rawValue, of: BusNames.application,
                destination: BusNames.service, path: path)
            questions[pid] = try bus.callAsync(question) { [unowned self] reply in
                questions[pid] = nil
                guard applications.entries[pid]?.path == path,
                    mayBeSuspended(path, in: applications.states[pid]),
                    case .string(SuspensionPolicy.automatic.rawValue)? = try? reply.readVariant()
                else { return }
                applications.wait(pid)
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }
}

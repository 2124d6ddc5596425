import AppStateBus
import AppStateContract
import SessionRules
import Systemd

/// What the daemon tells about the registered applications. Only its own signals are accepted: any connection may
/// address a signal to us directly.
extension DaemonConnection {
    func applicationMatches(on bus: Bus) throws(BusFailure) -> [Slot] {
        [
            try match(.applicationAdded, on: bus) { [unowned self] message in
                let path = try message.readObjectPath()
                let entry = Applications.Entry(name: try message.readString(), path: path)
                if let pid = Int32(exactly: try message.readUInt32()) { applications.add(entry, pid) }
            },
            try match(.applicationRemoved, on: bus) { [unowned self] message in
                let path = try message.readObjectPath()
                let id = try message.readString()
                guard let pid = Int32(exactly: try message.readUInt32()) else { return }
                switch ExitReason(rawValue: try message.readString()) {
                case .unregistered?: agent?.unregistered(pid)
                case .unresponsive?: agent?.ended(id, path, nil, try message.readDictionary())
                default: break
                }
                applications.remove(pid)
            },
            try match(.stateChanged, on: bus) { [unowned self] message in
                try message.skip("os")
                guard let pid = Int32(exactly: try message.readUInt32()) else { return }
                try message.skip("s")
                applications.move(pid, to: LifeCycleState(rawValue: try message.readString()))
            },
            try match(.applicationReclaimed, on: bus) { [unowned self] message in
                let path = try message.readObjectPath()
                let id = try message.readString()
                try message.skip("u")
                let bytes = try message.readUInt64()
                try message.skip("t")
                agent?.ended(id, path, bytes, try message.readDictionary())
            },
            try match(.resync, on: bus) { [unowned self] _ in
                journal.log(
                    .info,
                    "\(BusNames.service) has withheld signals: the list of applications is requested again")
                listAgain()
            },
        ]
    }

    private func match(
        _ signal: ManagerSignal, on bus: Bus, _ handler: @escaping (borrowing Message) throws -> Void
    ) throws(BusFailure) -> Slot {
        try bus.match(
            "type='signal',sender='\(BusNames.service)',path='\(BusNames.root)',"
                + "interface='\(BusNames.manager)',member='\(signal.rawValue)'",
            failed: { [unowned self] in deaf($0) },
            handler: { [unowned self] message in
                if message.sender == daemon { try? handler(message) }
            })
    }

    /// Takes the answer to `ListApplications`.
    func take(listIn message: borrowing Message) {
        guard let rows = try? Self.rows(of: message) else { return }
        let former = applications.isKnown ? applications.registered : []
        for pid in former where rows[pid] == nil { agent?.unregistered(pid) }
        applications.replace(rows)
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
}

import AppStateBus
import AppStateContract
import Systemd

/// As which applications processes are registered with the daemon. It is asked, and tells of changes, only while somebody
/// wants to know. Only the daemon's own word is taken: anybody may address a signal to us directly.
final class Registry {
    /// What a process is registered as.
    struct Entry: Equatable {
        let name: String
        /// Of its object. None is given twice.
        let path: String
    }

    private let bus: Bus
    private let deaf: (MethodError) -> Void
    private let journal: Journal
    private let tell: ([Int32: Entry]) -> Void
    private let unregistered: (Int32) -> Void
    private var entries: [Int32: Entry] = [:]
    /// Whether a daemon has told of all that are registered, and is still there.
    private(set) var isKnown = false
    /// The daemon's connection, once it has answered.
    private var daemon: String?
    private var isWanted = false
    private var matches: [Slot] = []
    private var calls: [Slot] = []
    private var listing: Slot?

    /// - Parameters:
    ///   - deaf: called when the bus does not tell of the daemon.
    ///   - tell: gets all that are registered, by pid, whenever they, or `isKnown`, are others.
    ///   - unregistered: gets who is registered no more, and was not said to have ended.
    init(
        bus: Bus, deaf: @escaping (MethodError) -> Void, journal: Journal,
        tell: @escaping ([Int32: Entry]) -> Void,
        unregistered: @escaping (Int32) -> Void
    ) {
        self.bus = bus
        self.deaf = deaf
        self.journal = journal
        self.tell = tell
        self.unregistered = unregistered
    }

    /// Begins or ends to ask.
    func want(_ isWanted: Bool) {
        guard isWanted != self.isWanted else { return }
        self.isWanted = isWanted
        (calls, listing) = ([], nil)
        do {
            if isWanted {
                try listen()
                try ask()
            } else {
                matches = []
                entries = [:]
                isKnown = false
                daemon = nil
                calls = [try call(.unsubscribe) { _ in }]
            }
        } catch {
            // The connection is gone, which somebody else is told of.
            journal.log(.debug, "\(error)")
        }
    }

    private func listen() throws(BusFailure) {
        let manager =
            "type='signal',sender='\(BusNames.service)',path='\(BusNames.root)',interface='\(BusNames.manager)'"
        matches = [
            try bus.match(manager + ",member='\(ManagerSignal.applicationAdded.rawValue)'", failed: deaf) {
                [unowned self] message in
                guard message.sender == daemon,
                    let row = try? (message.readObjectPath(), message.readString(), message.readUInt32())
                else { return }
                learn(Entry(name: row.1, path: row.0), row.2)
            },
            try bus.match(manager + ",member='\(ManagerSignal.applicationRemoved.rawValue)'", failed: deaf) {
                [unowned self] message in
                guard message.sender == daemon,
                    let row = try? (
                        message.readObjectPath(), message.readString(), message.readUInt32(),
                        message.readString()
                    )
                else { return }
                if row.3 == ExitReason.unregistered.rawValue, let pid = Int32(exactly: row.2) {
                    unregistered(pid)
                }
                learn(nil, row.2)
            },
            try bus.match(manager + ",member='\(ManagerSignal.resync.rawValue)'", failed: deaf) {
                [unowned self] message in
                guard message.sender == daemon else { return }
                journal.log(
                    .info, "\(BusNames.service) has withheld signals: who is registered is asked again")
                do {
                    try list()
                } catch {
                    journal.log(.debug, "\(error)")
                }
            },
            try bus.watchOwner(of: BusNames.service, failed: deaf) { [unowned self] _, owner in
                (calls, listing) = ([], nil)
                isKnown = false
                daemon = owner
                guard owner != nil else { return tell(entries) }
                // Another daemon.
                do {
                    try ask()
                } catch {
                    journal.log(.debug, "\(error)")
                }
            },
        ]
    }

    /// First the changes, then what there is: what changes in between is seen twice rather than never.
    private func ask() throws(BusFailure) {
        calls.append(try call(.subscribe) { [unowned self] reply in daemon = reply.sender })
        try list()
    }

    private func list() throws(BusFailure) {
        listing = try call(.listApplications) { [unowned self] reply in
            guard let rows = try? Self.rows(of: reply) else { return }
            let before = isKnown ? entries : [:]
            entries = rows
            daemon = reply.sender
            isKnown = true
            for pid in before.keys where rows[pid] == nil { unregistered(pid) }
            tell(entries)
        }
    }

    private static func rows(of message: borrowing Message) throws(BusFailure) -> [Int32: Entry] {
        var rows: [Int32: Entry] = [:]
        _ = try message.enter(.array, "(osuus)")
        while try message.enter(.struct, "osuus") {
            let path = try message.readObjectPath()
            let name = try message.readString()
            if let pid = Int32(exactly: try message.readUInt32()) {
                rows[pid] = Entry(name: name, path: path)
            }
            try message.skip("us")
            try message.exit()
        }
        try message.exit()
        return rows
    }

    private func learn(_ entry: Entry?, _ pid: UInt32) {
        guard let pid = Int32(exactly: pid) else { return }
        entries[pid] = entry
        tell(entries)
    }

    private func call(
        _ method: ManagerMethod, _ done: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) -> Slot {
        try bus.callAsync(bus.newCall(method)) { [journal] reply in
            if let error = reply.error {
                journal.log(.debug, "\(method.rawValue): \(error)")
            } else {
                done(reply)
            }
        }
    }
}

extension Bus {
    /// A call of the daemon, to fill and send.
    func newCall<Name: MethodName>(
        _ method: Name, at path: String = BusNames.root
    ) throws(BusFailure) -> Message {
        try newCall(
            destination: BusNames.service, path: path, interface: Name.interface, member: method.rawValue)
    }
}

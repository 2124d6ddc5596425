import AppStateBus
import AppStateContract
import Systemd

/// As which applications processes are registered with the daemon, and which of them are suspended. Only the daemon's own
/// word is taken: anybody may address a signal to us directly.
final class Registry: DaemonSpeaker {
    /// What a process is registered as.
    struct Entry: Equatable {
        let name: String
        /// Of its object. None is given twice.
        let path: String
    }

    private let bus: Bus
    private let deaf: (MethodError) -> Void
    private let line: DaemonLine
    private let journal: Journal
    private let tell: ([Int32: Entry]) -> Void
    private let unregistered: (Int32) -> Void
    private let tellSuspended: (Set<Int32>) -> Void
    private var entries: [Int32: Entry] = [:]
    private var suspended: Set<Int32> = []
    /// Whether a daemon has told of all that are registered, and is still there.
    private(set) var isKnown = false
    private var isSubscribed = false
    /// Who is registered was asked for, and changes have been told since.
    private var isListed = false
    private var matches: [Slot] = []

    /// - Parameters:
    ///   - deaf: called when the bus does not tell of the daemon.
    ///   - tell: gets all that are registered, by pid, whenever they, or `isKnown`, are others.
    ///   - unregistered: gets who is registered no more, and was not said to have ended.
    ///   - suspended: gets those that are suspended, by whomever, whenever they are others.
    init(
        bus: Bus, deaf: @escaping (MethodError) -> Void, journal: Journal,
        tell: @escaping ([Int32: Entry]) -> Void,
        unregistered: @escaping (Int32) -> Void, suspended: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.bus = bus
        self.deaf = deaf
        self.journal = journal
        self.tell = tell
        self.unregistered = unregistered
        tellSuspended = suspended
        line = try DaemonLine(bus: bus, deaf: deaf, journal: journal)
        line.speaker = self
        matches = try listen()
        line.proceed()
    }

    private func listen() throws(BusFailure) -> [Slot] {
        [
            try match(.applicationAdded) { [unowned self] message in
                let path = try message.readObjectPath()
                learn(Entry(name: try message.readString(), path: path), try message.readUInt32())
            },
            try match(.applicationRemoved) { [unowned self] message in
                try message.skip("os")
                let pid = try message.readUInt32()
                let reason = try message.readString()
                if reason == ExitReason.unregistered.rawValue, let pid = Int32(exactly: pid) {
                    unregistered(pid)
                }
                learn(nil, pid)
            },
            try match(.stateChanged) { [unowned self] message in
                try message.skip("os")
                let pid = try message.readUInt32()
                try message.skip("s")
                let isSuspended = try message.readString() == LifeCycleState.suspended.rawValue
                guard let pid = Int32(exactly: pid) else { return }
                if isSuspended {
                    learn(suspended: suspended.union([pid]))
                } else {
                    learn(suspended: suspended.subtracting([pid]))
                }
            },
            try match(.resync) { [unowned self] _ in
                journal.log(
                    .info, "\(BusNames.service) has withheld signals: who is registered is asked again")
                isListed = false
                line.proceed()
            },
        ]
    }

    private func match(
        _ signal: ManagerSignal, _ handler: @escaping (borrowing Message) throws -> Void
    ) throws(BusFailure) -> Slot {
        try bus.match(
            "type='signal',sender='\(BusNames.service)',path='\(BusNames.root)',"
                + "interface='\(BusNames.manager)',member='\(signal.rawValue)'",
            failed: deaf
        ) { [unowned self] message in
            if message.sender == line.daemon { try? handler(message) }
        }
    }

    /// First the changes, then what there is: what changes in between is seen twice rather than never.
    func speak() throws {
        if !isSubscribed {
            isSubscribed = true
            let method = ManagerMethod.subscribe
            try line.call(method, refused: { [journal] in journal.log(.debug, "\(method.rawValue): \($0)") })
        }
        guard !isListed else { return }
        isListed = true
        try line.call(
            ManagerMethod.listApplications,
            // Asked again after the next `Resync`, and of the next daemon: a list that is refused once, because others of
            // this user have too many under way, is no reason to ask nothing more.
            refused: { [journal] in
                journal.log(.info, "\(BusNames.service) does not say who is registered: \($0)")
            },
            answered: { [unowned self] reply in
                if let (rows, suspended) = try? Self.rows(of: reply) { learn(rows, suspended) }
            })
    }

    func forget() {
        (isKnown, isSubscribed, isListed) = (false, false, false)
        learn(suspended: [])
        tell(entries)
    }

    private func learn(suspended: Set<Int32>) {
        guard suspended != self.suspended else { return }
        self.suspended = suspended
        tellSuspended(suspended)
    }

    private func learn(_ rows: [Int32: Entry], _ suspended: Set<Int32>) {
        learn(suspended: suspended)
        let before = isKnown ? entries : [:]
        entries = rows
        isKnown = true
        for pid in before.keys where rows[pid] == nil { unregistered(pid) }
        tell(entries)
    }

    private static func rows(
        of message: borrowing Message
    ) throws(BusFailure) -> (rows: [Int32: Entry], suspended: Set<Int32>) {
        var rows: [Int32: Entry] = [:]
        var suspended: Set<Int32> = []
        _ = try message.enter(.array, "(osuus)")
        while try message.enter(.struct, "osuus") {
            let path = try message.readObjectPath()
            let name = try message.readString()
            let pid = Int32(exactly: try message.readUInt32())
            try message.skip("u")
            let state = try message.readString()
            try message.exit()
            guard let pid else { continue }
            rows[pid] = Entry(name: name, path: path)
            if state == LifeCycleState.suspended.rawValue { suspended.insert(pid) }
        }
        try message.exit()
        return (rows, suspended)
    }

    private func learn(_ entry: Entry?, _ pid: UInt32) {
        guard let pid = Int32(exactly: pid) else { return }
        entries[pid] = entry
        if entry == nil { learn(suspended: suspended.subtracting([pid])) }
        tell(entries)
    }
}

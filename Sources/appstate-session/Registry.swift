import AppStateBus
import AppStateContract
import Systemd

/// Tracks the processes that are registered with the daemon, the application of each, and which of them are suspended.
/// Only the daemon's own signals are accepted: any connection may address a signal to us directly.
final class Registry: DaemonSpeaker {
    /// The application that a process is registered as.
    struct Entry: Equatable {
        let name: String
        /// The path of its object. No path is given twice.
        let path: String
    }

    private let bus: Bus
    private let deaf: (MethodError) -> Void
    private let line: DaemonLine
    private let journal: Journal
    private let tell: ([Int32: Entry]) -> Void
    private let unregistered: (Int32) -> Void
    private let tellResting: (_ suspended: Set<Int32>, _ waiting: Set<Int32>) -> Void
    private let tellStates: ([Int32: LifeCycleState]) -> Void
    private let reclaimed: (_ path: String, _ bytes: UInt64) -> Void
    private let restsInSight: (Int32) -> Bool
    private var states: [Int32: LifeCycleState] = [:]
    private var entries: [Int32: Entry] = [:]
    private var suspended: Set<Int32> { Set(states.filter { $0.value == .suspended }.keys) }
    /// Processes in the background that are perhaps about to be suspended.
    private var waiting: Set<Int32> = []
    /// Whether a daemon has reported all registered applications, and is still there.
    private(set) var isKnown = false
    private var isSubscribed = false
    /// The list of registered applications was requested, and changes have been announced since.
    private var isListed = false
    private var matches: [Slot] = []
    private var questions: [Int32: Slot] = [:]

    /// - Parameters:
    ///   - deaf: called if the bus refuses a match rule for the daemon.
    ///   - tell: gets all registered applications, by PID, whenever they or `isKnown` change.
    ///   - unregistered: gets a process that is no longer registered and was not reported to have ended.
    ///   - resting: gets the suspended applications, no matter what suspended them, and those that will be suspended
    ///     when their time in the background is over; called whenever one of them is registered, suspended or let run.
    ///   - states: gets the states of all applications, whenever one of them changes.
    ///   - reclaimed: gets an application that was ended because memory was short, and how much that has freed.
    ///   - restsInSight: whether an application is suspended even while it is visible.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, journal: Journal,
        tell: @escaping ([Int32: Entry]) -> Void,
        unregistered: @escaping (Int32) -> Void,
        resting: @escaping (_ suspended: Set<Int32>, _ waiting: Set<Int32>) -> Void,
        states: @escaping ([Int32: LifeCycleState]) -> Void,
        reclaimed: @escaping (_ path: String, _ bytes: UInt64) -> Void,
        restsInSight: @escaping (Int32) -> Bool
    ) throws(BusFailure) {
        self.bus = bus
        self.deaf = deaf
        self.journal = journal
        self.tell = tell
        self.unregistered = unregistered
        tellResting = resting
        tellStates = states
        self.reclaimed = reclaimed
        self.restsInSight = restsInSight
        line = try DaemonLine(bus: bus, loop: loop, deaf: deaf, journal: journal)
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
                let from = try message.readString()
                let to = try message.readString()
                if let pid = Int32(exactly: pid) { learn(pid, from, to) }
            },
            try bus.match(
                "type='signal',sender='\(BusNames.service)',path_namespace='\(BusNames.applications)',"
                    + "interface='\(BusNames.application)',member='\(ApplicationSignal.didEnterBackground.rawValue)'",
                failed: deaf
            ) { [unowned self] message in
                guard message.sender == line.daemon, let path = message.path,
                    let pid = entries.first(where: { $0.value.path == path })?.key
                else { return }
                try? message.skip("t")
                guard let deadline = try? message.readUInt64() else { return }
                // 0: the application is not suspended as long as its objection lasts.
                guard deadline != 0 else { return askSuspension(of: pid) }
                waiting.insert(pid)
                tellResting(suspended, waiting)
            },
            try match(.applicationReclaimed) { [unowned self] message in
                let path = try message.readObjectPath()
                try message.skip("su")
                reclaimed(path, try message.readUInt64())
            },
            try match(.resync) { [unowned self] _ in
                journal.log(
                    .info,
                    "\(BusNames.service) has withheld signals: the list of applications is requested again")
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

    /// Subscribes before it asks for the list: a change in between is seen twice rather than never.
    func speak() throws {
        if !isSubscribed {
            isSubscribed = true
            let method = ManagerMethod.subscribe
            try line.call(
                method,
                refused: { [unowned self] in
                    // Changes before the subscription is accepted are not announced.
                    if line.tryAgain("does not accept a subscription", $0) {
                        (isSubscribed, isListed) = (false, false)
                    }
                },
                answered: { [unowned self] _ in line.haveRoom() })
        }
        guard !isListed else { return }
        isListed = true
        try line.call(
            ManagerMethod.listApplications,
            refused: { [unowned self] in
                if line.tryAgain("does not list the applications", $0) { isListed = false }
            },
            answered: { [unowned self] reply in
                if let rows = try? Self.rows(of: reply) { learn(rows) }
            })
    }

    func forget() {
        // Suspended applications stay so until the next daemon says otherwise, and may be needed meanwhile.
        (isKnown, isSubscribed, isListed) = (false, false, false)
        tell(entries)
    }

    /// Handles a change of the rule for an application, which may be suspended from now on.
    func ruled(_ path: String) {
        guard let pid = entries.first(where: { $0.value.path == path })?.key else { return }
        if mayBeSuspended(pid), !waiting.contains(pid) { askSuspension(of: pid) }
    }

    private func mayBeSuspended(_ pid: Int32) -> Bool {
        states[pid] == .background || states[pid] == .inactive && restsInSight(pid)
    }

    /// Asks whether policy may suspend the application once there is no objection. No signal
    /// announces that moment.
    private func askSuspension(of pid: Int32) {
        guard let path = entries[pid]?.path else { return }
        do throws(BusFailure) {
            let question = try bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.properties, member: "Get")
            try question.append(BusNames.application)
            try question.append(ApplicationProperty.suspension.rawValue)
            questions[pid] = try bus.callAsync(question) { [unowned self] reply in
                questions[pid] = nil
                guard entries[pid]?.path == path, mayBeSuspended(pid),
                    case .string(SuspensionPolicy.automatic.rawValue)? = try? reply.readVariant()
                else { return }
                waiting.insert(pid)
                tellResting(suspended, waiting)
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func learn(_ pid: Int32, _ from: String, _ to: String) {
        states[pid] = LifeCycleState(rawValue: to)
        tellStates(states)
        // It usually runs because another process needs it, and has yet to answer.
        let isBack = from == LifeCycleState.suspended.rawValue && to == LifeCycleState.background.rawValue
        if isBack || states[pid] == .inactive && restsInSight(pid) {
            waiting.insert(pid)
        } else if to != LifeCycleState.background.rawValue, to != LifeCycleState.suspended.rawValue {
            waiting.remove(pid)
        }
        tellResting(suspended, waiting)
    }

    private func learn(_ rows: [Int32: (entry: Entry, state: String)]) {
        let before = isKnown ? entries : [:]
        entries = rows.mapValues(\.entry)
        isKnown = true
        states = rows.compactMapValues { LifeCycleState(rawValue: $0.state) }
        // The list does not say whether they will be suspended.
        waiting = Set(states.keys.filter(mayBeSuspended))
        for pid in before.keys where rows[pid] == nil { unregistered(pid) }
        tellStates(states)
        tell(entries)
        // A watch of these needs to know at which processes another application begins.
        tellResting(suspended, waiting)
    }

    private static func rows(
        of message: borrowing Message
    ) throws(BusFailure) -> [Int32: (entry: Entry, state: String)] {
        var rows: [Int32: (entry: Entry, state: String)] = [:]
        _ = try message.enter(.array, "(osuus)")
        while try message.enter(.struct, "osuus") {
            let path = try message.readObjectPath()
            let name = try message.readString()
            let pid = Int32(exactly: try message.readUInt32())
            try message.skip("u")
            let state = try message.readString()
            try message.exit()
            guard let pid else { continue }
            rows[pid] = (Entry(name: name, path: path), state)
        }
        try message.exit()
        return rows
    }

    private func learn(_ entry: Entry?, _ pid: UInt32) {
        guard let pid = Int32(exactly: pid) else { return }
        entries[pid] = entry
        if entry == nil {
            waiting.remove(pid)
            questions[pid] = nil
            states[pid] = nil
            tellStates(states)
        }
        tellResting(suspended, waiting)
        tell(entries)
    }
}

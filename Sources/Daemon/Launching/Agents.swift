import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// The session agents, which start and show applications for the daemon (`org.appstate1.Agent`).
///
/// The bus passes on at most 128 calls of ours that are not answered: dbus-daemon(1), "max_replies_per_connection". A
/// call that we no longer wait for counts there until the agent answers or leaves. So a user has few calls at the bus
/// at a time, answered late or never, and the others wait here for their turn.
final class Agents {
    private let bus: Bus
    private let connections: Connections
    private let share: WorkShare
    private let journal: Journal
    private var timer: AppStateBus.Timer?
    /// The newest agent is last.
    private var agents: [Agent] = []
    /// The calls that each connection has not answered in time.
    private var unanswered: [ConnectionName: Unanswered] = [:]
    private var loads: [UInt32: Load] = [:]
    /// The calls of all users that the bus counts.
    private var atBus = 0
    /// The calls whose answers are awaited.
    private var slots: [UInt64: Slot] = [:]
    private var lastSlot: UInt64 = 0
    /// The calls that have not been sent yet. The one that can wait least is first.
    private var waiting: [Call] = []

    struct Agent: Equatable {
        let connection: ConnectionName
        let user: UInt32
        let session: SessionKey
    }

    private struct Unanswered {
        let user: UInt32
        var count = 0
    }

    /// A call, and what follows from it.
    private final class Call {
        let agent: ConnectionName
        let user: UInt32
        let message: Message
        let patience: UInt64
        /// When it is no longer sent.
        let end: UInt64
        let answered: (borrowing Message) -> Void
        let failed: (MethodError) -> Void

        init(
            _ agent: ConnectionName, of user: UInt32, _ message: borrowing Message, within patience: UInt64,
            _ answered: @escaping (borrowing Message) -> Void, _ failed: @escaping (MethodError) -> Void
        ) {
            self.agent = agent
            self.user = user
            self.message = message.retained()
            self.patience = patience
            end = Clock.monotonicMicroseconds + patience
            self.answered = answered
            self.failed = failed
        }

        func end(with refusal: MethodError?, _ reply: borrowing Message) {
            guard let refusal else { return answered(reply) }
            failed(refusal)
        }
    }

    /// What the agents of one user have to do.
    private struct Load {
        var underWay = 0
        var waiting = 0
        /// Not answered in time, but still counted by the bus.
        var unanswered = 0
        /// Whether the last call was answered.
        var isAnswering = false

        var atBus: Int { underWay + unanswered }
        var most: Int { isAnswering ? Agents.mostAtBus.answering : Agents.mostAtBus.others }
        var isIdle: Bool { atBus == 0 && waiting == 0 }
    }

    /// For each user: one agent for each session, and those that are about to leave.
    private static let mostPerUser = 16
    /// The most calls of one user at the bus. What an agent answers makes room for the next call, so a session that
    /// starts waits for its agent alone.
    private static let mostAtBus = (answering: 8, others: 4)
    /// The most calls of all users at the bus. The rest is for pings (`Delivery`).
    private static let mostInAll = 48
    /// A user with fewer calls at the bus than `few` finds room even when others have filled the normal limit.
    private static let (few, mostInAllWithFew) = (2, 64)
    /// The most calls to all agents of a user that wait, for their turn or for their answer.
    private static let mostOfUser = 32

    /// The activation of a bus name may take this long, and so may a busy display.
    static let patience: UInt64 = 30_000_000
    /// The longest part of an agent's message that is forwarded.
    private static let longestRefusal = 256
    /// How long the report of a process's end waits for its exit status.
    static let patienceWithExits: UInt64 = 1_000_000

    init(
        loop: EventLoop, bus: Bus, connections: Connections, share: WorkShare, journal: Journal
    ) throws(BusFailure) {
        self.bus = bus
        self.connections = connections
        self.share = share
        self.journal = journal
        timer = try loop.timer { [weak self] in self?.advance() }
    }

    /// The daemon uses the newest agent of a user's session, as long as it exists. A restarted agent may
    /// register before the bus has announced that the old one left, and an agent that stays only briefly does
    /// not replace the older one for good.
    func register(_ connection: Connection, for session: SessionKey) {
        agents.removeAll { $0.connection == connection.name }
        agents.append(Agent(connection: connection.name, user: connection.user, session: session))
        if agents.count(where: { $0.user == connection.user }) > Self.mostPerUser,
            let oldest = agents.firstIndex(where: { $0.user == connection.user })
        {
            agents.remove(at: oldest)
        }
    }

    func departed(_ name: ConnectionName) {
        let users = Set(agents.lazy.filter { $0.connection == name }.map(\.user))
        agents.removeAll { $0.connection == name }
        if let left = unanswered.removeValue(forKey: name) {
            change(left.user) { $0.unanswered -= left.count }
        }
        for user in users { change(user) { _ in } }
        advance()
    }

    /// A connection has answered a call after we stopped waiting.
    func haveAnsweredLate(_ name: ConnectionName) {
        guard let left = unanswered[name] else { return }
        unanswered[name] = left.count > 1 ? Unanswered(user: left.user, count: left.count - 1) : nil
        change(left.user) { $0.unanswered -= 1 }
        advance()
    }

    /// The agent that works for a user in a session.
    func agent(of session: SessionKey, for user: UInt32) -> Agent? {
        agents.last { $0.session == session && $0.user == user }
    }

    /// Calls an agent of a user without waiting for the answer. The call may wait for its turn as long as for its
    /// answer. One of the two closures is called, later and once.
    ///
    /// - Parameters:
    ///   - patience: in microseconds.
    ///   - answered: gets the answer.
    ///   - failed: gets the agent's refusal, or why there is no answer.
    func call(
        _ agent: ConnectionName, of user: UInt32, _ method: AgentMethod, within patience: UInt64,
        _ write: (borrowing Message) throws(BusFailure) -> Void,
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (MethodError) -> Void
    ) throws(MethodError) {
        // An earlier daemon's record may name a connection that has left.
        guard connections[agent]?.user == user else { throw Self.hasLeft }
        let load = loads[user] ?? Load()
        if let why = refusal(for: user) { throw why }
        guard load.underWay + load.waiting < Self.mostOfUser else {
            throw MethodError(
                .limitsExceeded,
                "\(load.underWay + load.waiting) calls wait for the session agents of user \(user)")
        }
        do throws(BusFailure) {
            let message = try newCall(agent, method)
            try write(message)
            let call = Call(agent, of: user, message, within: patience, answered, failed)
            if hasRoom(for: user) { return try send(call) }
            change(user) { $0.waiting += 1 }
            let place = waiting.firstIndex { $0.end > call.end }
            waiting.insert(call, at: place ?? waiting.endIndex)
            arm()
        } catch {
            throw MethodError(error)
        }
    }

    private static let hasLeft = MethodError(.failed, "The session agent has left the bus")

    /// Why no agent of a user can be called before one answers; nil: one can.
    private func refusal(for user: UInt32) -> MethodError? {
        guard let load = loads[user], load.unanswered >= load.most else { return nil }
        return MethodError(
            .failed, "The session agents of user \(user) have not answered \(load.unanswered) calls")
    }

    private func hasRoom(for user: UInt32) -> Bool {
        let load = loads[user] ?? Load()
        let most = load.atBus < Self.few ? Self.mostInAllWithFew : Self.mostInAll
        return load.atBus < load.most && atBus < most
    }

    private func change(_ user: UInt32, _ body: (inout Load) -> Void) {
        var load = loads[user] ?? Load()
        let before = load.atBus
        body(&load)
        atBus += load.atBus - before
        let isForgotten = load.isIdle && !agents.contains { $0.user == user }
        loads[user] = isForgotten ? nil : load
    }

    private func send(_ call: Call) throws(BusFailure) {
        lastSlot += 1
        let number = lastSlot
        let end = Clock.monotonicMicroseconds + call.patience
        slots[number] = try bus.callAsync(call.message, timeout: call.patience) { [weak self] reply in
            guard let self else { return }
            slots[number] = nil
            haveAnswer(to: call, reply, isLate: Clock.monotonicMicroseconds >= end)
        }
        change(call.user) { $0.underWay += 1 }
    }

    private func haveAnswer(to call: Call, _ reply: borrowing Message, isLate: Bool) {
        let (error, size, sender) = (reply.error, reply.errorSize, reply.sender)
        // libsystemd reads the whole text of an error before our code sees it.
        share.charge(handingOn: size, to: call.user, at: Clock.monotonicMicroseconds)
        noteAnswer(to: call, error, isFromAgent: sender == call.agent, isLate: isLate)
        // What follows from this answer comes before what waits: a program at its gate runs before the next is started.
        call.end(with: error.map(Self.refusal), reply)
        advance()
    }

    private func noteAnswer(to call: Call, _ error: MethodError?, isFromAgent: Bool, isLate: Bool) {
        // Earlier, the bus has answered, because the agent has left.
        let isOpen = !isFromAgent && isLate && error?.isNoReply == true && connections[call.agent] != nil
        if isOpen { unanswered[call.agent, default: Unanswered(user: call.user)].count += 1 }
        change(call.user) {
            $0.underWay -= 1
            if isOpen { $0.unanswered += 1 }
            if isFromAgent || isOpen { $0.isAnswering = isFromAgent }
        }
    }

    /// Sends what waits, as far as there is room, and ends what waits in vain.
    private func advance() {
        if waiting.isEmpty { return }
        let now = Clock.monotonicMicroseconds
        var ended: [(call: Call, why: MethodError)] = []
        var rest: [Call] = []
        for call in waiting {
            var why = connections[call.agent] == nil ? Self.hasLeft : refusal(for: call.user)
            if why == nil, hasRoom(for: call.user) {
                do throws(BusFailure) {
                    try send(call)
                    change(call.user) { $0.waiting -= 1 }
                    continue
                } catch {
                    why = MethodError(error)
                }
            }
            if why == nil, now >= call.end { why = hasWaited(call.user) }
            guard let why else {
                rest.append(call)
                continue
            }
            change(call.user) { $0.waiting -= 1 }
            ended.append((call, why))
        }
        waiting = rest
        arm()
        // Whoever is told may call again.
        for (call, why) in ended { call.failed(why) }
    }

    private func hasWaited(_ user: UInt32) -> MethodError {
        MethodError(
            .limitsExceeded,
            "\(loads[user]?.atBus ?? 0) calls to session agents of user \(user), and \(atBus) of all users, "
                + "are not answered")
    }

    private func arm() {
        if let next = waiting.first {
            timer?.arm(at: next.end)
        } else {
            timer?.disarm()
        }
    }

    /// The same, for a message whose answer is not needed.
    func tell(_ agent: ConnectionName, _ method: AgentMethod, _ number: UInt64) {
        journal.attempt(.notice, "cannot send \(method.rawValue) to the session agent") {
            let message = try newCall(agent, method)
            try message.append(number)
            try bus.send(message)
        }
    }

    private func newCall(_ agent: ConnectionName, _ method: AgentMethod) throws(BusFailure) -> Message {
        try bus.newCall(
            destination: agent, path: BusNames.agentPath, interface: BusNames.agent, member: method.rawValue)
    }

    /// An agent's error under the daemon's own error names: the agent is a client, and its errors are not the
    /// daemon's.
    static func refusal(_ error: MethodError) -> MethodError {
        var message = String.UnicodeScalarView()
        message.append(
            contentsOf: error.message.unicodeScalars.prefix(longestRefusal).map {
                $0.properties.generalCategory == .control ? " " : $0
            })
        let error = MethodError(error.name, String(message))
        let known: Set<ErrorName> = [.noSuchApplication, .invalidArgs, .notSupported, .limitsExceeded]
        if let name = ErrorName(rawValue: error.name), known.contains(name) { return error }
        return MethodError(.failed, "The session agent: \(error.message)")
    }
}

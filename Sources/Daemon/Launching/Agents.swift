import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// The session agents, which start and show applications for the daemon (`org.appstate1.Agent`).
final class Agents {
    private let bus: Bus
    private let share: WorkShare
    private let journal: Journal
    /// The newest agent is last.
    private var agents: [Agent] = []
    /// The calls that each connection has not answered in time. The bus counts them as our pending calls
    /// until the connection answers or leaves, and allows 128 in all: dbus-daemon(1),
    /// "max_replies_per_connection".
    private var unanswered: [ConnectionName: Unanswered] = [:]

    /// The number of pending calls to the agents of each user.
    private var underWay: [UInt32: Int] = [:]

    /// Counts a call for as long as it is pending, no matter how it ends.
    private final class Ticket {
        private let returned: () -> Void

        init(_ returned: @escaping () -> Void) { self.returned = returned }
        deinit { returned() }
    }

    private struct Unanswered {
        let user: UInt32
        var count = 0
    }

    struct Agent: Equatable {
        let connection: ConnectionName
        let user: UInt32
        let session: SessionKey
    }

    /// For each user: one agent for each session, and those that are about to leave.
    private static let mostPerUser = 16
    /// The most calls that all agents of a user may leave unanswered.
    private static let mostUnanswered = 4
    /// The most pending calls to all agents of a user.
    private static let mostUnderWay = 32

    /// The activation of a bus name may take this long, and so may a busy display.
    static let patience: UInt64 = 30_000_000
    /// The longest part of an agent's message that is forwarded.
    private static let longestRefusal = 256
    /// How long the report of a process's end waits for its exit status.
    static let patienceWithExits: UInt64 = 1_000_000

    init(bus: Bus, share: WorkShare, journal: Journal) {
        self.bus = bus
        self.share = share
        self.journal = journal
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
        agents.removeAll { $0.connection == name }
        unanswered[name] = nil
    }

    /// A connection has answered a call after we stopped waiting.
    func haveAnsweredLate(_ name: ConnectionName) {
        guard let count = unanswered[name]?.count else { return }
        unanswered[name]?.count = count - 1
        if count <= 1 { unanswered[name] = nil }
    }

    /// The agent that works for a user in a session.
    func agent(of session: SessionKey, for user: UInt32) -> Agent? {
        agents.last { $0.session == session && $0.user == user }
    }

    /// Calls an agent of a user without waiting for the answer.
    func call(
        _ agent: ConnectionName, of user: UInt32, _ method: AgentMethod, within patience: UInt64,
        _ write: (borrowing Message) throws(BusFailure) -> Void,
        _ answered: @escaping (borrowing Message) -> Void
    ) throws(MethodError) -> Slot {
        let open = unanswered.values.reduce(0) { $0 + ($1.user == user ? $1.count : 0) }
        guard open < Self.mostUnanswered else {
            throw MethodError(.failed, "The session agents of user \(user) have not answered \(open) calls")
        }
        let waiting = underWay[user, default: 0]
        guard waiting < Self.mostUnderWay else {
            throw MethodError(.limitsExceeded, "\(waiting) calls wait for the session agents of user \(user)")
        }
        underWay[user] = waiting + 1
        let ticket = Ticket { [weak self] in self?.ticketReturned(user) }
        do throws(BusFailure) {
            let message = try newCall(agent, method)
            try write(message)
            let end = Clock.monotonicMicroseconds + patience
            return try bus.callAsync(message, timeout: patience) { [weak self] reply in
                withExtendedLifetime(ticket) {}
                let size = reply.errorSize
                let error = reply.error
                self?.haveAnswer(
                    from: agent, of: user, error, size, isLate: Clock.monotonicMicroseconds >= end)
                answered(reply)
            }
        } catch {
            throw MethodError(error)
        }
    }

    private func ticketReturned(_ user: UInt32) {
        let left = underWay[user, default: 0] - 1
        underWay[user] = left > 0 ? left : nil
    }

    private func haveAnswer(
        from agent: ConnectionName, of user: UInt32, _ error: MethodError?, _ size: Int, isLate: Bool
    ) {
        // libsystemd reads the whole text of an error before our code sees it.
        share.charge(handingOn: size, to: user, at: Clock.monotonicMicroseconds)
        // If the error came before that, the bus has answered, because the agent has left.
        if isLate, error?.isNoReply == true {
            unanswered[agent, default: Unanswered(user: user)].count += 1
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

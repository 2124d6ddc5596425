import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// The session agents, which start applications for the daemon (`org.appstate1.Launcher`) and show them
/// (`org.appstate1.Presenter`). A compositor may be the presenter, and not the launcher.
///
/// The bus passes on at most 128 calls of ours that are not answered: dbus-daemon(1), "max_replies_per_connection". A
/// call that we no longer wait for counts there until the agent answers or leaves, so the agents of one user can leave
/// only a part of these unanswered.
final class Agents {
    private let bus: Bus
    private let connections: Connections
    private let journal: Journal
    /// The newest agent is last. Some may have left the bus.
    private var agents: [Agent] = []
    /// How many calls each connection has not answered, in time or at all.
    private var open: [ConnectionName: Int] = [:]
    /// The calls whose answers are awaited.
    private var slots: [UInt64: Slot] = [:]
    private var lastSlot: UInt64 = 0

    /// What an agent does for the daemon.
    enum Role {
        case launcher, presenter
    }

    struct Agent: Equatable {
        let role: Role
        let connection: ConnectionName
        let user: UInt32
        let session: SessionKey
    }

    /// The most calls of one user that are not answered.
    private static let mostOpen = 16

    /// The activation of a bus name may take this long, and so may a busy display.
    static let patience: UInt64 = 30_000_000
    /// The longest part of an agent's message that is forwarded.
    private static let longestRefusal = 256

    init(bus: Bus, connections: Connections, journal: Journal) {
        self.bus = bus
        self.connections = connections
        self.journal = journal
    }

    /// The daemon uses the newest agent of a user's session, as long as it exists. A restarted agent may
    /// register before the bus has announced that the old one left, and an agent that stays only briefly does
    /// not replace the older one for good.
    func register(_ connection: Connection, as role: Role, for session: SessionKey) {
        agents.removeAll {
            connections[$0.connection] == nil || $0.connection == connection.name && $0.role == role
        }
        agents.append(
            Agent(role: role, connection: connection.name, user: connection.user, session: session))
    }

    /// A connection has answered a call, perhaps after we stopped waiting.
    func haveAnswered(_ name: ConnectionName) {
        if let count = open[name] { open[name] = count > 1 ? count - 1 : nil }
    }

    /// The agent that works for a user in a session.
    func agent(_ role: Role, of session: SessionKey, for user: UInt32) -> Agent? {
        agents.last {
            $0.role == role && $0.session == session && $0.user == user && connections[$0.connection] != nil
        }
    }

    /// The newest launcher of a user, in any session.
    func launcher(for user: UInt32) -> Agent? {
        agents.last { $0.role == .launcher && $0.user == user && connections[$0.connection] != nil }
    }

    /// Calls an agent of a user without waiting for the answer. One of the two closures is called once.
    ///
    /// - Parameters:
    ///   - patience: in microseconds.
    ///   - answered: gets the answer.
    ///   - failed: gets the agent's refusal, or why there is no answer.
    func call<Name: MethodName>(
        _ agent: ConnectionName, of user: UInt32, _ method: Name, within patience: UInt64,
        _ write: (borrowing Message) throws(BusFailure) -> Void,
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (MethodError) -> Void
    ) {
        // An earlier daemon's record may name a connection that has left.
        guard connections[agent]?.user == user else {
            return failed(MethodError(.failed, "The session agent has left the bus"))
        }
        open = open.filter { connections[$0.key] != nil }
        let count = open.reduce(0) { connections[$1.key]?.user == user ? $0 + $1.value : $0 }
        guard count < Self.mostOpen else {
            return failed(
                MethodError(
                    .limitsExceeded, "The session agents of user \(user) have not answered \(count) calls"))
        }
        do throws(BusFailure) {
            let message = try newCall(agent, method)
            try write(message)
            lastSlot += 1
            let number = lastSlot
            let end = Clock.monotonicMicroseconds + patience
            slots[number] = try bus.callAsync(message, timeout: patience) { [weak self] reply in
                guard let self else { return }
                slots[number] = nil
                let error = reply.error
                let isTooLate =
                    reply.sender != agent && error?.isNoReply == true && Clock.monotonicMicroseconds >= end
                if !isTooLate { haveAnswered(agent) }
                if let error { failed(Self.refusal(error)) } else { answered(reply) }
            }
            open[agent, default: 0] += 1
        } catch {
            failed(MethodError(error))
        }
    }

    /// The same, for a message whose answer is not needed.
    func send<Name: MethodName>(_ agent: ConnectionName, _ method: Name, _ number: UInt64) {
        journal.attempt(.notice, "cannot send \(method.rawValue) to the session agent") {
            let message = try newCall(agent, method)
            try message.append(number)
            try bus.send(message)
        }
    }

    private func newCall<Name: MethodName>(
        _ agent: ConnectionName, _ method: Name
    ) throws(BusFailure) -> Message {
        try bus.newCall(
            destination: agent, path: BusNames.agentPath, interface: Name.interface, member: method.rawValue)
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

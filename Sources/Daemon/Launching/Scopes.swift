import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// Asks session agents for scopes.
final class Scopes {
    private let agents: Agents
    private let proc: Proc
    /// The oldest is first.
    private var waiting: [Request] = []
    /// How many requests of each user are not answered yet.
    private var open: [UInt32: Int] = [:]

    private struct Request {
        let id: ApplicationID
        let agent: Agents.Agent
        let main: ProcessIdentity
        let others: [Int32]
        let completion: (String?) -> Void
    }

    /// How long an agent may take, in microseconds.
    private static let patience: UInt64 = 2_000_000
    /// How many requests of a user are made at once: launches need some of the calls that `Agents` allows.
    private static let mostOpen = 4

    init(agents: Agents, proc: Proc) {
        self.agents = agents
        self.proc = proc
    }

    /// Asks the agent of the application's session, or another one of its user, to move processes into a scope of their
    /// own.
    ///
    /// - Parameters:
    ///   - id: the application's id, for the name of the scope.
    ///   - session: the logind session of the application; empty: none.
    ///   - main: the first process to move.
    ///   - others: the other processes to move.
    /// - Returns: false if there is no agent to ask; otherwise `completion` is called once, with nil or the reason of the
    ///   failure.
    func make(
        _ id: ApplicationID, user: UInt32, session: String, main: ProcessIdentity, others: [Int32],
        completion: @escaping (String?) -> Void
    ) -> Bool {
        let key: SessionKey = session.isEmpty ? .user(user) : .login(session)
        // A user has one service manager for all sessions.
        guard let agent = agents.agent(.launcher, of: key, for: user) ?? agents.launcher(for: user) else {
            return false
        }
        let request = Request(id: id, agent: agent, main: main, others: others, completion: completion)
        if open[user, default: 0] >= Self.mostOpen {
            waiting.append(request)
            return true
        }
        do {
            try send(request)
            return true
        } catch {
            return false
        }
    }

    private func send(_ request: Request) throws {
        let user = request.agent.user
        let deadline = Clock.monotonicMicroseconds + Self.patience
        let answered: (String?) -> Void = { [weak self] failure in
            guard let self else { return }
            open[user] = open[user].flatMap { $0 > 1 ? $0 - 1 : nil }
            request.completion(failure)
            // Otherwise an agent that hangs would make each of the others wait as long.
            if failure != nil, Clock.monotonicMicroseconds >= deadline { giveUp(on: request.agent) }
            sendWaiting(of: user)
        }
        // The descriptor comes first: a process that has taken the id since has another start time.
        let main = try PidFD(pid: request.main.pid)
        guard try proc.identity(of: request.main.pid) == request.main else {
            throw MethodError(.noSuchProcess, "Process \(request.main.pid) has ended")
        }
        try agents.call(
            request.agent.connection, of: user, LauncherMethod.makeScope, within: Self.patience
        ) { message throws(BusFailure) in
            try message.append(request.id.rawValue)
            try message.append(descriptor: main.rawValue)
            try message.append(request.others.map(UInt32.init(bitPattern:)))
        } answered: { _ in
            answered(nil)
        } failed: {
            answered($0.message)
        }
        open[user, default: 0] += 1
    }

    private func sendWaiting(of user: UInt32) {
        while open[user, default: 0] < Self.mostOpen,
            let next = waiting.firstIndex(where: { $0.agent.user == user })
        {
            let request = waiting.remove(at: next)
            do {
                try send(request)
            } catch {
                request.completion("\(error)")
            }
        }
    }

    private func giveUp(on agent: Agents.Agent) {
        let given = waiting.filter { $0.agent == agent }
        waiting.removeAll { $0.agent == agent }
        for request in given { request.completion("The session agent does not answer") }
    }
}

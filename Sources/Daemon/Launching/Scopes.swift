import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// Asks session agents for scopes: one at a time for each user, whose service manager makes one after the other.
final class Scopes {
    private let agents: Agents
    private let proc: Proc
    /// What each user's agents are asked for, in this order. The first is under way.
    private var requests: [UInt32: [Request]] = [:]

    private struct Request {
        let id: ApplicationID
        let agent: Agents.Agent
        let main: ProcessIdentity
        let others: [Int32]
        let completion: (String?) -> Void
    }

    /// How long an agent may take, in microseconds.
    private static let patience: UInt64 = 2_000_000

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
        requests[user, default: []].append(request)
        if requests[user]?.count == 1 { send(request) }
        return true
    }

    private func send(_ request: Request) {
        do {
            try ask(request)
        } catch {
            haveAsked(request, "\(error)")
        }
    }

    private func ask(_ request: Request) throws {
        let deadline = Clock.monotonicMicroseconds + Self.patience
        // The descriptor comes first: a process that has taken the id since has another start time.
        let main = try PidFD(pid: request.main.pid)
        guard try proc.identity(of: request.main.pid) == request.main else {
            throw MethodError(.noSuchProcess, "Process \(request.main.pid) has ended")
        }
        agents.call(
            request.agent.connection, of: request.agent.user, LauncherMethod.makeScope, within: Self.patience
        ) { message throws(BusFailure) in
            try message.append(request.id.rawValue)
            try message.append(descriptor: main.rawValue)
            try message.append(request.others.map(UInt32.init(bitPattern:)))
        } answered: { [weak self] _ in
            self?.haveAsked(request, nil)
        } failed: { [weak self] failure in
            // Otherwise an agent that hangs would make each of the others wait as long.
            if Clock.monotonicMicroseconds >= deadline { self?.giveUpWaiting(request.agent.user) }
            self?.haveAsked(request, failure.message)
        }
    }

    private func giveUpWaiting(_ user: UInt32) {
        let waiting = requests[user, default: []].dropFirst()
        requests[user]?.removeLast(waiting.count)
        for request in waiting { request.completion("The session agent does not answer") }
    }

    private func haveAsked(_ request: Request, _ failure: String?) {
        let user = request.agent.user
        requests[user]?.removeFirst()
        let next = requests[user]?.first
        if next == nil { requests[user] = nil }
        request.completion(failure)
        if let next { send(next) }
    }
}

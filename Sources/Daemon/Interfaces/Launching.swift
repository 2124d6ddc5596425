import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

private typealias Name = ApplicationMethod

/// Launching, and sending things to applications: decode, ask, reply.
extension Daemon {
    func launchingMethods() -> [Method] {
        [
            Method(
                ManagerMethod.launch, in: [("app_id", "s"), ("options", "a{sv}")],
                out: [("application", "o")]
            ) { [unowned self] call in
                let id = try call.message.readString()
                let options = try call.message.readDictionary()
                let connection = try access.unconfinedCaller(of: call.member)
                guard let id = ApplicationID(id) else { throw MethodError.notAnID(id) }
                var request = try LaunchRequest(options)
                request.source = access.application(of: connection)?.id
                try checkPayload(of: request)
                let pending = call.deferred()
                launch(id, of: connection.user, in: sessions.key(of: connection), request) { result in
                    switch result {
                    case .success(let number):
                        pending.reply { message throws(BusFailure) in
                            try message.append(objectPath: BusNames.path(ofApplication: number.rawValue))
                        }
                    case .failure(let error): pending.fail(error)
                    }
                }
            },
            registration(ManagerMethod.registerLauncher, .launcher),
            registration(ManagerMethod.registerPresenter, .presenter),
        ]
    }

    private func registration(_ name: ManagerMethod, _ role: Agents.Role) -> Method {
        Method(name, in: [("session", "s")]) { [unowned self] call in
            let session = try call.message.readString()
            let connection = try access.unconfinedCaller(of: call.member)
            agents.register(connection, as: role, for: try agentSession(session, connection))
            try call.reply()
            if role == .launcher { core.report(.agentCame(user: connection.user)) }
        }
    }

    /// The methods that send something to an application.
    func sendingMethods() -> [Method] {
        [
            Method(Name.open, in: [("urls", "as"), ("options", "a{sv}")]) { [unowned self] call in
                let urls = try call.message.readStrings()
                let options = try call.message.readDictionary()
                let application = try receiver(of: call)
                var request = try LaunchRequest(urls: urls, options: options)
                try sign(&request)
                present(application, request, answering(call))
            },
            Method(Name.continueActivity, in: [("type", "s"), ("info", "a{sv}")]) { [unowned self] call in
                let type = try call.message.readString()
                let info = try call.message.readDictionary()
                let application = try receiver(of: call)
                var request = LaunchRequest(toDelegateFor: .activity)
                try sign(&request)
                request.payload = ["type": .string(type), "info": try sendable(type, info, "info")]
                present(application, request, answering(call))
            },
            Method(Name.sendMessage, in: [("name", "s"), ("payload", "a{sv}")]) { [unowned self] call in
                let name = try call.message.readString()
                let payload = try call.message.readDictionary()
                let application = try receiver(of: call)
                var request = LaunchRequest(toDelegateFor: .message)
                try sign(&request)
                request.payload = ["name": .string(name), "payload": try sendable(name, payload, "payload")]
                if application.isBeingLaunched {
                    return send(request, to: application, answering(call))
                }
                try perform(.deliver(application.number, request.deliveries, request.words))
                try call.reply()
            },
            Method(Name.setUserActivity, in: [("type", "s"), ("info", "a{sv}")]) { [unowned self] call in
                let type = try call.message.readString()
                let info = try call.message.readDictionary()
                let (application, _) = try access.ownApplication(call)
                let activity = type.isEmpty ? .dictionary([:]) : try sendable(type, info, "info")
                guard case .dictionary(let entries) = activity, let registered = table[application.number]
                else { return try call.reply() }
                let next = type.isEmpty ? nil : Registered.UserActivity(type: type, info: entries)
                let growth = (next?.bytes ?? 0) - (registered.userActivity?.bytes ?? 0)
                try checkRoom(growth, of: application.user)
                registered.userActivity = next
                records.rewrite(application.number)
                executor.note([.userActivity], of: application.number)
                try call.reply()
                step()
            },
        ]
    }

    /// The application to which something is sent. Whoever may see it can send to it: a sandboxed process only to its
    /// own application.
    private func receiver(of call: borrowing Call) throws(MethodError) -> Application {
        try access.visibleApplication(at: call.path, to: try access.caller())
    }

    /// Notes who sends it.
    private func sign(_ request: inout LaunchRequest) throws(MethodError) {
        let connection = try access.caller()
        request.source = access.application(of: connection)?.id
        request.isConfined = connection.isSandboxed
    }

    func answering(_ call: borrowing Call) -> Launches.Answer {
        let pending = call.deferred()
        return { result in
            switch result {
            case .success: pending.reply()
            case .failure(let error): pending.fail(error)
            }
        }
    }

    /// Checks the purpose of a launch in the same way as the items that are sent to a running application.
    private func checkPayload(of request: LaunchRequest) throws(MethodError) {
        guard let (name, content) = request.reason.delivery else { return }
        let limit = core.machine.settings.limits.stringBytes
        guard let text = try request.payload[name]?.string(name, limit: limit), !text.isEmpty else {
            throw MethodError(
                .invalidArgs, "The reason \(request.reason.rawValue) needs \(name) in the payload")
        }
        if let value = request.payload[content] {
            guard case .dictionary = value else { throw value.wrongType(content, "a{sv}") }
        }
    }

    /// Data from a client for others, within the limits for all forwarded data.
    private func sendable(
        _ name: String, _ entries: [(key: String, value: Variant)], _ key: String
    ) throws(MethodError) -> Variant {
        if name.isEmpty { throw MethodError(.invalidArgs, "The name is empty") }
        try checkName(name, "The name")
        let value = Variant.dictionary(of: entries)
        try value.checkBody(key)
        return value
    }

    /// The session that an agent serves; an empty name means the agent's own session.
    private func agentSession(_ name: String, _ connection: Connection) throws(MethodError) -> SessionKey {
        if name.isEmpty { return sessions.key(ofProcess: connection.pid, user: connection.user) }
        guard let owner = Login.owner(ofSession: name) else {
            throw MethodError(.invalidArgs, "No logind session \"\(name.shortened)\"")
        }
        guard owner == connection.user else {
            throw MethodError(
                .accessDenied, "Session \(name.shortened) does not belong to user \(connection.user)")
        }
        return .login(name)
    }
}

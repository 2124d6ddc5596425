import AppStateBus
import AppStateContract
import LifeCycle
import Linux

private typealias Name = ManagerMethod

/// org.appstate1.Manager: decode, ask, reply.
extension Daemon {
    func managerInterface() -> Interface {
        Interface(
            BusNames.manager,
            methods: [
                Method(
                    Name.register, in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")],
                    out: [("application", "o")]
                ) { [unowned self] call in
                    let id = try call.message.readString()
                    let pid = try call.message.readUInt32()
                    let options = try call.message.readDictionary()
                    let connection = try access.caller()
                    try register(call, id, try subject(pid: pid, of: connection), options, connection)
                },
                Method(
                    Name.registerProcess, in: [("app_id", "s"), ("pidfd", "h"), ("options", "a{sv}")],
                    out: [("application", "o")]
                ) { [unowned self] call in
                    let id = try call.message.readString()
                    let descriptor = Descriptor(owning: try call.message.readOwnedDescriptor())
                    let options = try call.message.readDictionary()
                    try register(
                        call, id, try subject(descriptor: descriptor.release()), options, try access.caller())
                },
                Method(Name.listApplications, out: [("applications", "a(osuus)")]) { [unowned self] call in
                    try answerWithList(call, try access.caller())
                },
                Method(Name.getApplicationByPID, in: [("pid", "u")], out: [("application", "o")]) {
                    [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let path = try path(ofApplicationWith: pid, for: try access.caller())
                    try call.reply { message throws(BusFailure) in try message.append(objectPath: path) }
                },
                Method(Name.getApplicationByID, in: [("app_id", "s")], out: [("application", "o")]) {
                    [unowned self] call in
                    let path = try path(
                        ofApplicationNamed: try call.message.readString(), for: try access.caller())
                    try call.reply { message throws(BusFailure) in try message.append(objectPath: path) }
                },
                Method(Name.subscribe) { [unowned self] call in
                    try subscribe(try access.unconfinedCaller(of: call.member))
                    try call.reply()
                },
                Method(Name.unsubscribe) { [unowned self] call in
                    let connection = try access.caller()
                    connection.isSubscribed = false
                    connection.followsObjects = false
                    connection.listedOwn = []
                    try call.reply()
                },
                Method(Name.reloadConfig) { [unowned self] call in
                    let connection = try access.unconfinedCaller(of: call.member)
                    guard connection.mayManage(user: 0) else {
                        throw MethodError(.accessDenied, "User \(connection.user) may not reload")
                    }
                    reload()
                    try call.reply()
                },
                Method(
                    Name.toggleFocused, in: [("options", "a{sv}")],
                    out: [("application", "o"), ("suspended", "b")]
                ) { [unowned self] call in
                    let entries = try call.message.readDictionary()
                    let (application, connection) = try focusedApplication(call)
                    let path = BusNames.path(ofApplication: application.number.rawValue)
                    try toggle(application, try ToggleOptions(entries), by: connection, call) {
                        try $0.append(objectPath: path)
                    }
                },
                getHistory(), listHistory(), forgetApplication(), listScheduledLaunches(),
                cancelScheduledLaunch(),
            ] + launchingMethods(),
            properties: properties.manager.properties,
            signals: ManagerSignal.allCases.map { Signal($0.rawValue, $0.arguments) })
    }

    private func path(ofApplicationWith pid: UInt32, for connection: Connection) throws(MethodError) -> String
    {
        let lineage: [ProcessID]
        do throws(MethodError) {
            lineage = try namedProcess(pid).lineage
        } catch {
            // A sandboxed process does not learn which processes there are.
            guard connection.isSandboxed else { throw error }
            lineage = []
        }
        guard let number = core.machine.owner(of: lineage),
            let application = core.machine.applications[number],
            access.maySee(application, connection)
        else { throw MethodError(.noSuchApplication, "Process \(pid) belongs to no application") }
        return BusNames.path(ofApplication: number.rawValue)
    }

    private func path(ofApplicationNamed id: String, for connection: Connection) throws(MethodError) -> String
    {
        guard let id = ApplicationID(id) else { throw .notAnID(id) }
        guard let application = running(id, of: connection.user, in: sessions.key(of: connection)),
            access.maySee(application, connection)
        else {
            throw MethodError(
                .noSuchApplication, "No application \(id) of user \(connection.user) is registered")
        }
        return BusNames.path(ofApplication: application.number.rawValue)
    }

    private func subscribe(_ connection: Connection) throws(MethodError) {
        if connection.isSubscribed { return }
        try admitSubscriber(connection)
        connection.isSubscribed = true
    }

    /// Refuses a connection that wants to be notified of changes if its user has too many such connections.
    func admitSubscriber(_ connection: Connection) throws(MethodError) {
        if !connection.isSubscriber { try checkSubscriberRoom(of: connection.user) }
    }

    /// Inhibitors count, too: each costs the daemon about as much.
    func checkSubscriberRoom(of user: UInt32) throws(MethodError) {
        let limit = core.machine.settings.limits.subscribersPerUser
        let subscribers = connections.all.count { $0.isSubscriber && $0.user == user }
        guard subscribers + openInhibitors.count(of: user) < limit else {
            throw MethodError(
                .limitsExceeded, "More than \(limit) subscribers and inhibitors of user \(user)")
        }
    }

    /// The application that has the focus in the caller's session, if the caller may manage it.
    private func focusedApplication(
        _ call: borrowing Call
    ) throws(MethodError) -> (Application, Connection) {
        let connection = try access.unconfinedCaller(of: call.member)
        guard let number = core.machine.focusedApplication(in: sessions.key(of: connection)),
            let application = core.machine.applications[number], access.maySee(application, connection)
        else {
            throw MethodError(.noSuchApplication, "No registered application has the focus in your session")
        }
        return (application, connection)
    }
}

extension Method {
    /// A method of the contract. The limit is that of all messages except saved state and sets of windows (dbus-api).
    init(
        _ name: some MethodName, in arguments: [(String, String)] = [], out results: [(String, String)] = [],
        limit: Int = 65_536, _ handler: @escaping (borrowing Call) throws -> Void
    ) {
        self.init(name.rawValue, in: arguments, out: results, limit: limit, handler)
    }
}

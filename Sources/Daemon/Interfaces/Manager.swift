import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// org.appstate1.Manager: decode, ask, reply.
extension Daemon {
    func managerInterface() -> Interface {
        Interface(
            BusNames.manager,
            methods: [
                Method(
                    "Register", in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")],
                    out: [("application", "o")]
                ) { [unowned self] call in
                    let id = try call.message.readString()
                    let pid = try call.message.readUInt32()
                    let options = try call.message.readDictionary()
                    let connection = try caller()
                    try register(call, id, try subject(pid: pid, of: connection), options, connection)
                },
                Method(
                    "RegisterProcess", in: [("app_id", "s"), ("pidfd", "h"), ("options", "a{sv}")],
                    out: [("application", "o")]
                ) { [unowned self] call in
                    let id = try call.message.readString()
                    let descriptor = try call.message.readDescriptor()
                    let options = try call.message.readDictionary()
                    try register(call, id, try subject(descriptor: descriptor), options, try caller())
                },
                notSupported(
                    "Launch", in: [("app_id", "s"), ("options", "a{sv}")], out: [("application", "o")]),
                Method("ListApplications", out: [("applications", "a(osuus)")]) { [unowned self] call in
                    listings.answer(.rows, call.deferred(), try caller())
                },
                Method("GetApplicationByPID", in: [("pid", "u")], out: [("application", "o")]) {
                    [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let path = try path(ofApplicationWith: pid, for: try caller())
                    try call.reply { message throws(BusFailure) in try message.append(objectPath: path) }
                },
                Method("Subscribe") { [unowned self] call in
                    try subscribe(try caller())
                    try call.reply()
                },
                Method("Unsubscribe") { [unowned self] call in
                    let connection = try caller()
                    connection.isSubscribed = false
                    connection.followsObjects = false
                    try call.reply()
                },
                Method("ReloadConfig") { [unowned self] call in
                    let connection = try caller()
                    try requireUnconfined(connection, call.member)
                    try requireManagement(
                        of: .configuration, user: 0, connection, "User \(connection.user) may not reload")
                    reload()
                    try call.reply()
                },
                notSupported("GetHistory", in: [("app_id", "s")], out: [("history", "a(tssi)")]),
                notSupported("RegisterAgent", in: [("session", "s")]),
            ],
            properties: [
                Property("Version", "s", emits: .const) { message, _ in try message.append(Product.version) },
                Property("MemoryPressure", "s", emits: .change) { [unowned self] message, _ in
                    try message.append(machine.memoryPressure.rawValue)
                },
                Property("FocusedApplication", "o", emits: .change) { [unowned self] message, _ in
                    try message.append(objectPath: focusedApplicationPath())
                },
                Property("StopDetection", "s", emits: .change) { [unowned self] message, _ in
                    try message.append(sensor.detection.rawValue)
                },
            ],
            signals: [
                Signal("ApplicationAdded", [("application", "o"), ("app_id", "s"), ("pid", "u")]),
                Signal(
                    "ApplicationRemoved",
                    [("application", "o"), ("app_id", "s"), ("pid", "u"), ("exit_reason", "s")]),
                Signal(
                    "StateChanged",
                    [
                        ("application", "o"), ("app_id", "s"), ("pid", "u"), ("from", "s"), ("to", "s"),
                        ("reason", "s"),
                    ]),
                Signal("MemoryPressureChanged", [("level", "s")]),
                Signal(
                    "ApplicationReclaimed",
                    [("application", "o"), ("app_id", "s"), ("pid", "u"), ("bytes", "t"), ("usec", "t")]),
                Signal("Resync"),
            ])
    }

    /// A method of the API that comes with a later version.
    func notSupported(
        _ name: String, in arguments: [(String, String)] = [], out results: [(String, String)] = []
    ) -> Method {
        Method(name, in: arguments, out: results) { _ in
            throw MethodError(.notSupported, "\(name) is not there yet in appstated \(Product.version)")
        }
    }

    private func path(ofApplicationWith pid: UInt32, for connection: Connection) throws(MethodError) -> String
    {
        let lineage = try namedProcess(pid).lineage
        guard let number = machine.owner(of: lineage), let application = machine.applications[number],
            maySee(application, connection)
        else { throw MethodError(.noSuchApplication, "Process \(pid) belongs to no application") }
        return BusNames.path(ofApplication: number.rawValue)
    }

    private func subscribe(_ connection: Connection) throws(MethodError) {
        try requireUnconfined(connection, "Subscribe")
        if connection.isSubscribed { return }
        try admitSubscriber(connection)
        connection.isSubscribed = true
    }

    /// Refuses one more connection that is told of changes than its user may have.
    func admitSubscriber(_ connection: Connection) throws(MethodError) {
        if connection.isSubscriber { return }
        let limit = machine.settings.limits.subscribersPerUser
        let count = connections.all.count { $0.isSubscriber && $0.user == connection.user }
        guard count < limit else {
            throw MethodError(.limitsExceeded, "More than \(limit) subscribers of user \(connection.user)")
        }
    }

    /// `/` where none has the focus, or one that the reader may not see.
    private func focusedApplicationPath() -> String {
        guard let connection = announcer.reader ?? (try? caller()),
            let number = machine.focusedApplication(in: session(of: connection)),
            let application = machine.applications[number], maySee(application, connection)
        else { return "/" }
        return BusNames.path(ofApplication: number.rawValue)
    }
}

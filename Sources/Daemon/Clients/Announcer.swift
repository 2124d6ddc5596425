import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// Turns announcements into the signals of the D-Bus API, and sends each to the connections that it concerns.
final class Announcer {
    private let delivery: Delivery
    private let connections: Connections
    private let journal: Journal
    private let core: Core
    private let access: Access
    private let sessions: SessionSensor
    private let properties: Properties

    init(
        delivery: Delivery, connections: Connections, journal: Journal, core: Core, access: Access,
        sessions: SessionSensor, properties: Properties
    ) {
        self.delivery = delivery
        self.connections = connections
        self.journal = journal
        self.core = core
        self.access = access
        self.sessions = sessions
        self.properties = properties
    }

    /// The interfaces that libsystemd's GetManagedObjects lists beside ours. Signals must name the same ones: GLib
    /// removes an object only when as many interfaces are removed as it has.
    private static let standardInterfaces = [
        "org.freedesktop.DBus.Peer", "org.freedesktop.DBus.Introspectable", BusNames.properties,
    ]

    func added(_ application: Registered) {
        journal.log(.debug, "registered", about: application, as: .applicationAdded)
        manager(.applicationAdded, about: application)
        for connection in connections.all
        where connection.isSandboxed && connection.followsObjects && connection.user == application.user
            && access.isOwn(application.number, connection)
        {
            connection.listedOwn.insert(application.number)
        }
        guard let known = core.application(application.number) else { return }
        delivery.sendEach(.objects("InterfacesAdded"), to: followers(of: application)) {
            message, connection in
            try appendObject(known, to: message, for: connection)
        }
    }

    /// An entry of `a{oa{sa{sv}}}`.
    func append(
        _ application: Application, to message: borrowing Message, for connection: Connection
    ) throws {
        try message.withContainer(.dictEntry, "oa{sa{sv}}") {
            try appendObject(application, to: message, for: connection)
        }
    }

    private func appendObject(
        _ application: Application, to message: borrowing Message, for connection: Connection
    ) throws {
        try message.append(objectPath: BusNames.path(ofApplication: application.number.rawValue))
        try message.withContainer(.array, "{sa{sv}}") {
            for name in Self.standardInterfaces {
                try message.withContainer(.dictEntry, "sa{sv}") {
                    try message.append(name)
                    try message.appendDictionary([])
                }
            }
            try message.withContainer(.dictEntry, "sa{sv}") {
                try message.append(BusNames.application)
                try access.write(for: connection) { try properties.append(application, to: message) }
            }
        }
    }

    func removed(_ application: Registered, _ reason: ExitReason) {
        journal.log(
            reason.priority, reason == .unregistered ? "unregistered" : "ended: \(reason.rawValue)",
            about: application, as: .applicationRemoved, [(.reason, reason.rawValue)])
        manager(.applicationRemoved, about: application) { message in
            try message.append(reason.rawValue)
            try message.appendDictionary(application.endDetails)
        }
        delivery.send(.objects("InterfacesRemoved"), to: followers(of: application)) { message in
            try message.append(objectPath: application.path)
            try message.append(strings: Self.standardInterfaces + [BusNames.application])
        }
        for connection in connections.all { connection.unfollow(application.number) }
    }

    /// Sends the last edge to the delegate, unless it was sent that as a subscriber.
    func announceEnd(_ application: Registered, _ announcement: Announcement, to delegate: ConnectionName) {
        guard let connection = connections[delegate], case .edge(_, let reason) = announcement.payload,
            !(connection.isSubscribed && reason == .exit)
        else { return }
        let signal = SignalName(announcement.signal, of: application)
        delivery.post(signal, to: connection) {
            try announcement.append(to: $0, [])
        }
    }

    func announce(_ application: Registered, _ announcement: Announcement, to audience: Audience) {
        let signal = SignalName(announcement.signal, of: application)
        let delegate = audience.contains(.delegate) ? core.application(application.number)?.delegate : nil
        if let connection = delegate.flatMap({ connections[$0] }) {
            delivery.post(signal, to: connection) {
                try announcement.append(to: $0, announcement.entries(of: application))
            }
        }
        guard audience.contains(.subscribers) else { return }
        let told = announcement.withoutContent
        delivery.send(signal, to: subscribers(of: application, without: delegate)) {
            try told.append(to: $0, [])
        }

        guard case .edge(let edge, let reason) = announcement.payload else { return }
        journal.log(
            .debug, "\(edge), reason: \(reason.rawValue)", about: application, as: .stateChanged,
            [(.from, edge.from.rawValue), (.to, edge.to.rawValue), (.reason, reason.rawValue)])
        manager(.stateChanged, about: application) { try announcement.append(to: $0, []) }
    }

    func changed(_ application: Registered, _ properties: Set<ApplicationProperty>) {
        let number = application.number
        propertiesChanged(of: application, properties) {
            let maySee = $0.mayManage(user: application.user)
            // A sandboxed connection follows its own application alone.
            return $0.isFollower && maySee || $0.follows(number) && (maySee || $0.isSandboxed)
        }
    }

    /// Every client sees the focus of its own session, so each is sent its own value.
    func focusChanged(in session: SessionKey) {
        managerChanged(.focusedApplication) {
            ($0.followsManager || $0.isSubscribed) && sessions.key(of: $0) == session
        }
    }

    /// The pressure is the machine's: every client may know it.
    func memoryPressureChanged(_ level: MemoryPressure) {
        delivery.send(.manager(.memoryPressureChanged), to: \.isSubscribed) { try $0.append(level.rawValue) }
        managerChanged(.memoryPressure)
    }

    func reclaimed(_ application: Registered, bytes: UInt64, microseconds: UInt64) {
        manager(.applicationReclaimed, about: application) { message in
            try message.append(bytes)
            try message.append(microseconds)
            try message.appendDictionary(application.endDetails)
        }
    }

    func detectionChanged() {
        managerChanged(.stopDetection)
    }

    func configurationChanged(_ properties: [ManagerProperty]) {
        for property in properties { managerChanged(property) }
    }

    /// The connections that subscribed to everything, except the delegate, which was sent its own signal.
    private func subscribers(
        of application: Registered, without delegate: ConnectionName? = nil
    ) -> (Connection) -> Bool {
        { $0.isSubscribed && $0.name != delegate && $0.mayManage(user: application.user) }
    }

    /// The connections that keep track of the existing objects. A sandboxed one keeps track of its own application.
    private func followers(of application: Registered) -> (Connection) -> Bool {
        {
            $0.isFollower && $0.mayManage(user: application.user)
                || $0.listedOwn.contains(application.number)
        }
    }

    private func propertiesChanged(
        of application: Registered, _ properties: Set<ApplicationProperty>, to wants: (Connection) -> Bool
    ) {
        propertiesChanged(
            of: self.properties.application, application.path, properties.map(\.rawValue).sorted(), to: wants)
    }

    private func managerChanged(
        _ property: ManagerProperty, to wants: (Connection) -> Bool = { $0.followsManager || $0.isSubscribed }
    ) {
        propertiesChanged(of: properties.manager, BusNames.root, [property.rawValue], to: wants)
    }

    private func propertiesChanged(
        of interface: Interface, _ path: String, _ names: [String], to wants: (Connection) -> Bool
    ) {
        // A value that may be long is only invalidated. Clients that need it read it.
        let invalidated = names.filter { $0 == ApplicationProperty.userActivity.rawValue }
        let names = names.filter { !invalidated.contains($0) }
        let signal = SignalName(path: path, interface: BusNames.properties, member: "PropertiesChanged")
        delivery.sendEach(signal, to: wants) { message, connection in
            try message.append(interface.name)
            try access.write(for: connection) {
                try interface.appendProperties(to: message, path: path, only: names)
            }
            try message.append(strings: invalidated)
        }
    }

    /// A signal of the manager whose first arguments say which application it is about.
    private func manager(
        _ signal: ManagerSignal, about application: Registered,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) {
        delivery.send(.manager(signal), to: subscribers(of: application)) { message in
            try message.append(objectPath: application.path)
            try message.append(application.id.rawValue)
            try message.append(application.pid)
            try body(message)
        }
    }
}

extension SignalName {
    fileprivate init(_ signal: ApplicationSignal, of application: Registered) {
        self.init(path: application.path, interface: BusNames.application, member: signal.rawValue)
    }
}

extension Announcement {
    /// What subscribers are told: that there was a message, and from whom, but not what it says.
    fileprivate var withoutContent: Announcement {
        switch payload {
        case .urls: .openURLs([], options: [])
        case .options: .reopen(options: [])
        case .activity: .continueUserActivity("", info: [])
        case .message(let sender, _, _): .messageReceived(from: sender, name: "", payload: [])
        case .scheduled(_, let task): .scheduledLaunchDue("", task: task)
        case .transfer: .backgroundTransferFinished("", result: [])
        case .none, .until, .level, .cause, .event, .edge: self
        }
    }

    /// The dictionary among the signal's arguments.
    fileprivate func entries(of application: Registered) -> [(String, Variant)] {
        switch payload {
        case .none: signal == .willFinishLaunching ? application.launchOptions : []
        case .urls(_, options: let fields), .options(let fields), .activity(_, info: let fields),
            .message(from: _, name: _, payload: let fields), .transfer(_, result: let fields):
            Variant.entries(inFields: fields)
        case .until, .level, .cause, .event, .edge, .scheduled: []
        }
    }

    /// Appends the signal's arguments.
    ///
    /// - Parameter entries: the dictionary among them.
    fileprivate func append(to message: borrowing Message, _ entries: [(String, Variant)]) throws {
        switch payload {
        case .none:
            if signal == .willFinishLaunching { try message.appendDictionary(entries) }
        case .until(let deadline, let number):
            try message.append(number)
            try message.append(deadline)
        case .options:
            try message.appendDictionary(entries)
        case .level(let level):
            try message.append(level.rawValue)
        case .cause(let change):
            try message.append(change.rawValue)
        case .event(let event):
            try message.append(event.rawValue)
        case .urls(let urls, _):
            try message.append(strings: urls)
            try message.appendDictionary(entries)
        case .activity(let name, _), .transfer(let name, _):
            try message.append(name)
            try message.appendDictionary(entries)
        case .message(let sender, let name, _):
            try message.append(sender)
            try message.append(name)
            try message.appendDictionary(entries)
        case .scheduled(let name, let task):
            try message.append(name)
            try message.append(task)
        case .edge(let edge, let reason):
            try message.append(edge.from.rawValue)
            try message.append(edge.to.rawValue)
            try message.append(reason.rawValue)
        }
    }
}

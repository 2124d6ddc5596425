import AppStateBus
import AppStateContract
import LifeCycle

/// What happens to a call before libsystemd dispatches it.
extension Daemon {
    /// In bytes. None of our objects has a longer path, but a path may be as long as a message, and libsystemd takes
    /// time for each of its slashes.
    private static let longestPath = 255

    /// dbus-daemon disconnects a client that sends more than 32 MiB on a system bus, and a list is kept in memory until
    /// it is sent.
    private static let mostBytesOfObjects = 24 << 20

    /// Handles the calls of standard interfaces that libsystemd would handle alone. GetAll and GetManagedObjects
    /// subscribe their caller to changes of what they return.
    ///
    /// - Returns: whether the call has been answered.
    func intercept(_ message: borrowing Message) -> Bool {
        if !message.isMethodCall {
            // An answer that arrives in time goes to the code that waits for it, and does not arrive here.
            if !message.isSignal, let sender = message.sender { agents.haveAnswered(sender) }
            return false
        }
        if message.hasPath(longerThan: Self.longestPath) {
            let why = "No object has a path of more than \(Self.longestPath) bytes"
            bus.refuse(message, MethodError("org.freedesktop.DBus.Error.UnknownObject", why))
            return true
        }
        let readsAll = message.hasMember("GetAll")
        guard readsAll || message.hasMember("GetManagedObjects"), let path = message.path,
            message.interface == (readsAll ? BusNames.properties : BusNames.objectManager),
            readsAll || path == BusNames.root
        else { return false }
        do throws(MethodError) {
            let connection = try access.caller()
            if readsAll {
                try follow(path, connection)
                return false
            }
            guard message.signature.isEmpty else { return false }
            try admitSubscriber(connection)
            connection.followsObjects = true
            connection.listedOwn = Set(access.ownApplications(of: connection))
            try answerWithObjects(bus.deferred(message), connection)
        } catch {
            bus.refuse(message, error)
        }
        return true
    }

    /// A caller that reads everything about an object is notified of its changes from then on, and counts as a
    /// subscriber.
    private func follow(_ path: String, _ connection: Connection) throws(MethodError) {
        if path == BusNames.root {
            try admitSubscriber(connection)
            connection.followsManager = true
            return
        }
        guard let application = try? access.visibleApplication(at: path, to: connection),
            !connection.follows(application.number)
        else { return }
        guard access.isOwn(application, connection) else {
            try admitSubscriber(connection)
            connection.followedApplications.insert(application.number)
            return
        }
        // Every application may follow its own changes, no matter how many others subscribe.
        connection.followedOwn.insert(application.number)
    }

    /// GetManagedObjects. libsystemd's answer would not respect what the caller may see.
    private func answerWithObjects(_ call: PendingCall, _ connection: Connection) throws(MethodError) {
        let applications = visibleApplications(to: connection)
        // A rough size of each object's names and values. Only the values that are added here can be long.
        let bytes = applications.reduce(0) { sum, application in
            let texts =
                application.backgroundModes + application.tasks.map(\.name) + application.outlook.objections
                + application.inhibitors.map { $0.who + $0.why }
            return sum + 2_048 + (table[application.number]?.contentBytes ?? 0)
                + texts.reduce(0) { $0 + $1.utf8.count }
        }
        guard bytes <= Self.mostBytesOfObjects else {
            return call.fail(
                MethodError(
                    .limitsExceeded,
                    "All objects would fill more than \(Self.mostBytesOfObjects) bytes: "
                        + "ListApplications names the applications, and GetAll reads one"))
        }
        call.reply { message in
            try message.withContainer(.array, "{oa{sa{sv}}}") {
                for application in applications {
                    try announcer.append(application, to: message, for: connection)
                }
            }
        }
    }

    /// The answer to ListApplications.
    func answerWithList(_ call: borrowing Call, _ connection: Connection) throws {
        let machine = core.machine
        try call.reply { message throws(BusFailure) in
            try message.open(.array, "(osuus)")
            for number in access.possiblyVisible(to: connection) {
                guard let registered = table[number], let state = machine.state(of: number),
                    connection.mayManage(user: registered.user) || access.isOwn(number, connection)
                else { continue }
                try message.open(.struct, "osuus")
                try message.append(objectPath: registered.path)
                try message.append(registered.id.rawValue)
                try message.append(registered.pid)
                try message.append(registered.user)
                try message.append(state.rawValue)
                try message.close()
            }
            try message.close()
        }
    }

    /// The applications that a connection may see, in order.
    private func visibleApplications(to connection: Connection) -> [Application] {
        access.possiblyVisible(to: connection).compactMap { core.application($0) }.filter {
            access.maySee($0, connection)
        }
    }
}

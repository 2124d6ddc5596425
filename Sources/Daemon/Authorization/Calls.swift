import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Examines every call before it is dispatched: its sender, and whether polkit must be asked first.
extension Daemon {
    /// dbus-api, "Message bodies other than saved state".
    private static let mostOfArguments = 65_536
    /// One set of at most 1,024 windows, with titles.
    private static let mostOfWindows = 1 << 20

    /// The largest saved state, and room for the handler to refuse one that is larger.
    private static let mostOfState = Keeper.mostBytesInMessage + mostOfArguments

    /// As `Message.size` counts them. Each of 1,024 launch options is an entry with a key, a variant and its value, and
    /// there may be as many URLs.
    private static let mostValues = 6 * LaunchOptions.mostValues
    /// A window is a structure with two numbers and a dictionary of `WindowKeyName`.
    private static let mostValuesOfWindows =
        (Machine.windowsPerReporter + 1) * (4 + 4 * WindowKeyName.allCases.count)

    /// The largest size of a call's arguments.
    private static func most(interface: String?, member: String?) -> (bytes: Int, values: Int) {
        switch (interface, member) {
        case (BusNames.reporter, ReporterMethod.replaceWindows.rawValue): (mostOfWindows, mostValuesOfWindows)
        case (BusNames.application, ApplicationMethod.saveState.rawValue): (mostOfState, mostValues)
        default: (mostOfArguments, mostValues)
        }
    }

    /// In bytes. None of our objects has a longer path, but a path may be as long as a message.
    private static let longestPath = 255

    private static let noSuchObject = MethodError(
        "org.freedesktop.DBus.Error.UnknownObject", "No object has a path of more than \(longestPath) bytes")

    private static let tooManyOfStrangers = MethodError(
        .limitsExceeded, "Too many calls wait for the bus to identify their senders")

    private static let noDescriptor = MethodError(.invalidArgs, "The message carries no file descriptor")
    private static let broken = MethodError(.invalidArgs, "The message is broken")

    private static func tooMuch(for most: (bytes: Int, values: Int)) -> MethodError {
        guard most.bytes == mostOfState else {
            return MethodError(
                .limitsExceeded, "The arguments are more than \(most.bytes) bytes or \(most.values) values")
        }
        return MethodError(
            .tooLarge, "The state has more than \(Keeper.mostBytesInMessage) bytes: use SaveStateFile")
    }

    /// The size of a call's arguments in bytes, or why the call is refused.
    private static func size(of message: borrowing Message) -> Result<Int, MethodError> {
        if message.hasPath(longerThan: longestPath) { return .failure(noSuchObject) }
        let most = most(interface: message.interface, member: message.member)
        do throws(BusFailure) {
            let size = try message.size(atMost: most.bytes, values: most.values)
            return size.map { .success($0) } ?? .failure(tooMuch(for: most))
        } catch {
            return .failure(error.errno == EBADF ? noDescriptor : broken)
        }
    }

    /// Determines the caller and its permissions before the call is dispatched. GetAll and GetManagedObjects
    /// subscribe their caller to changes of the data that they return.
    ///
    /// - Returns: whether the call was handled: refused, or held until polkit has answered.
    func meet(_ message: borrowing Message) -> Bool {
        let (isCall, isSignal) = (message.isMethodCall, message.isSignal)
        guard let sender = message.sender else { return false }
        guard isCall else {
            // An answer that arrives in time goes to the code that waits for it, and does not arrive here.
            if !isSignal { agents.haveAnsweredLate(sender) }
            return false
        }
        background.noteCall()
        if connections.isGone(sender) { return true }
        // This is checked before anything else is done with the call: a stranger's megabytes are not worth
        // reading.
        let size = Self.size(of: message)
        do {
            switch (try connections.caller(sender, of: message, try? size.get()), size) {
            case (.known(let connection), .success(let size)):
                return isDone(message, of: size, from: connection)
            case (.known(let connection), .failure(let error)): refuse(message, error, of: connection)
            case (.awaited, _), (.unknown(mayBeAnswered: false), _): break
            case (.unknown(mayBeAnswered: true), .success): bus.refuse(message, Self.tooManyOfStrangers)
            case (.unknown(mayBeAnswered: true), .failure(let error)): bus.refuse(message, error)
            }
        } catch {
            bus.refuse(message, Connections.refusal(error))
        }
        return true
    }

    /// A refusal is an answer, too, and counts until the caller reads it.
    private func refuse(_ message: borrowing Message, _ error: MethodError, of connection: Connection) {
        longCalls.charge(connection.user)
        guard message.expectsReply,
            unread.admit(UnreadAnswers.sizeOfRefusal, from: connection) != .ignored
        else { return }
        bus.refuse(message, error)
    }

    /// Whether a call from a known connection needs no further handling.
    private func isDone(
        _ message: borrowing Message, of size: Int, from connection: Connection
    ) -> Bool {
        do {
            if try longCalls.holds(message, of: size, from: connection) { return true }
        } catch {
            gate.forget(message, of: connection)
            refuse(message, error, of: connection)
            return true
        }
        do {
            if !gate.isReturning(message, of: connection), try isIgnored(message, of: connection) {
                return true
            }
            guard try gate.admits(message, of: connection, { demand(of: message, connection) }) else {
                return true
            }
            try follow(message, connection)
        } catch {
            bus.refuse(message, error)
            return true
        }
        // libsystemd would write all objects at once.
        guard message.interface == BusNames.objectManager, message.member == "GetManagedObjects",
            message.path == BusNames.root, message.signature.isEmpty
        else { return false }
        listings.answer(.objects, bus.deferred(message), connection)
        return true
    }

    /// Whether the call does not even get an error, because its user does not read the daemon's replies.
    private func isIgnored(
        _ message: borrowing Message, of connection: Connection
    ) throws(MethodError) -> Bool {
        guard message.expectsReply else { return false }
        switch unread.admit(sizeOfAnswer(to: message), from: connection) {
        case .admitted: return false
        case .ignored: return true
        case .refused: throw UnreadAnswers.refusal(of: connection.user)
        }
    }

    /// A generous estimate. The sizes of lists and saved state are known when they are written.
    private func sizeOfAnswer(to message: borrowing Message) -> Int {
        switch message.member {
        case "Introspect": 32_768
        case "GetAll": 8_192 + sizeOfTexts(at: message.path ?? "")
        // It names the background tasks three times.
        case ApplicationMethod.explain.rawValue:
            8_192 + 3 * sizeOfTexts(at: message.path ?? "") + sizeOfWindows(at: message.path ?? "")
        // Which property is read is not known yet. The names of background tasks are objections.
        case "Get", ApplicationMethod.canSuspend.rawValue: 1_024 + sizeOfTexts(at: message.path ?? "")
        default: 1_024
        }
    }

    private func sizeOfTexts(at path: String) -> Int {
        application(at: path).map { table.textBytes(of: $0) } ?? 0
    }

    private func sizeOfWindows(at path: String) -> Int {
        application(at: path).map { machine.windowTextBytes(of: $0.number) } ?? 0
    }

    private func application(at path: String) -> Application? {
        BusNames.applicationNumber(inPath: path).flatMap { core.application(ApplicationNumber($0)) }
    }

    /// A caller that reads everything about an object is notified of its changes from then on, and counts as a
    /// subscriber.
    private func follow(_ message: borrowing Message, _ connection: Connection) throws(MethodError) {
        switch (message.interface, message.member, message.path) {
        case (BusNames.objectManager?, "GetManagedObjects"?, BusNames.root?):
            try admitSubscriber(connection)
            connection.followsObjects = true
            connection.listedOwn = Set(ownApplications(of: connection))
        case (BusNames.properties?, "GetAll"?, BusNames.root?):
            try admitSubscriber(connection)
            connection.followsManager = true
        case (BusNames.properties?, "GetAll"?, let path?):
            guard let application = try? visibleApplication(at: path, to: connection),
                !connection.follows(application.number)
            else { return }
            guard isOwn(application, connection) else {
                try admitSubscriber(connection)
                connection.followedApplications.insert(application.number)
                return
            }
            // Every application may follow its own changes, no matter how many others subscribe.
            let limit = machine.settings.limits.subscribersPerUser
            guard connections.all.count(where: { $0.followedOwn.contains(application.number) }) < limit else {
                throw MethodError(
                    .limitsExceeded, "More than \(limit) connections of application \(application.number)")
            }
            connection.followedOwn.insert(application.number)
        default: break
        }
    }

    // MARK: Questions to polkit

    /// The methods that manage an application, and the arguments they take. polkit is not asked about a call whose
    /// arguments do not match.
    private static let managing: [ApplicationMethod: String] = [
        .suspend: "", .resume: "", .canSuspend: "", .terminate: "b", .unregister: "",
        .configure: "a{sv}", .toggle: "a{sv}", .open: "asa{sv}", .continueActivity: "sa{sv}",
        .sendMessage: "sa{sv}",
    ]
    /// The methods whose callers are notified of changes from then on.
    private static let subscribing: Set = [ManagerMethod.subscribe.rawValue, "GetManagedObjects", "GetAll"]

    /// polkit is not asked about an ordinary user who uses their own applications, except once when they subscribe:
    /// they may be notified of other users' applications later.
    private func demand(of message: borrowing Message, _ connection: Connection) -> Demand {
        if !connection.hasRightsByPolkit { return .nothing }
        let member = message.member ?? ""
        switch (message.interface, message.path) {
        case (BusNames.reporter?, _), ("org.freedesktop.DBus.Peer"?, _):
            return .nothing
        case (BusNames.manager?, BusNames.root?):
            switch ManagerMethod(rawValue: member) {
            case .register?, .registerProcess?:
                return demandToRegister(message, connection)
            case .reloadConfig?:
                return .management(
                    .configuration, details: [("method", member), ("target", "the configuration")])
            case .unsubscribe?, .launch?, .toggleFocused?, .getApplicationByID?, .getHistory?,
                .forgetApplication?, .registerAgent?:
                return .turn
            default:
                break
            }
        case (let interface, let path?):
            guard let number = BusNames.applicationNumber(inPath: path) else { break }
            let application = machine.applications[ApplicationNumber(number)]
            if application?.user == connection.user { return .nothing }
            if interface == BusNames.application, let method = ApplicationMethod(rawValue: member),
                Self.managing[method] == message.signature
            {
                return .management(
                    .application(number), details: details(of: member, path, application, connection))
            }
        case (_, nil):
            break
        }
        guard Self.subscribing.contains(member) || isForOthers(connection.user) else { return .turn }
        return .sight
    }

    /// Whether any application of another user is registered.
    private func isForOthers(_ user: UInt32) -> Bool {
        machine.applications.values.contains { $0.user != user }
    }

    /// The caller's user reads these details in the authentication dialog. For an application that the caller
    /// may not see, they contain only the caller's own arguments, and they are the same for an application
    /// that does not exist.
    private func details(
        of member: String, _ path: String, _ application: Application?, _ connection: Connection
    ) -> [(String, String)] {
        guard let application, maySee(application, connection) else {
            return [("method", member), ("object", path), ("target", path)]
        }
        return [
            ("method", member), ("object", path), ("application", application.id.rawValue),
            ("user", String(application.user)),
            ("target", "\(application.id) of user \(application.user)"),
        ]
    }

    /// The question about registering another user's process. Its owner and number are not secret.
    private func demandToRegister(_ message: borrowing Message, _ connection: Connection) -> Demand {
        let member = message.member ?? ""
        defer { try? message.rewind() }
        do {
            guard message.signature == (member == ManagerMethod.register.rawValue ? "sua{sv}" : "sha{sv}"),
                let id = ApplicationID(try message.readString())
            else { return .turn }
            // Most callers register their own process.
            guard let (identity, owner) = try processToRegister(message, member, connection) else {
                return .turn
            }
            // A process with the rights of more than one user cannot be registered by any caller.
            guard owner.real != connection.user, owner.isWholly(owner.real) else { return .turn }
            return .management(
                .process(ProcessID(identity), user: owner.real),
                details: [
                    ("method", member), ("application", id.rawValue), ("user", String(owner.real)),
                    ("pid", String(identity.pid)),
                    ("target", "process \(identity.pid) of user \(owner.real)"),
                ])
        } catch {
            // The handler reports what is wrong.
            return .turn
        }
    }

    /// The process that the call's next argument names; nil for the caller's own. Not inlined: Swift 6.0.3 crashes
    /// where a function that has `defer` looks up the subject in two ways.
    @inline(never)
    private func processToRegister(
        _ message: borrowing Message, _ member: String, _ connection: Connection
    ) throws -> (identity: ProcessIdentity, owner: Proc.Owner)? {
        if member == ManagerMethod.register.rawValue {
            let pid = try message.readUInt32()
            if pid == 0 { return nil }
            let subject = try subject(pid: pid, of: connection)
            return (subject.identity, subject.owner)
        }
        let subject = try subject(descriptor: message.readForeignDescriptor())
        return (subject.identity, subject.owner)
    }
}

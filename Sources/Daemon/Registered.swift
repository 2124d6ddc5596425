import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// The data about an application that is needed outside the life cycle: its names on the bus, and how to
/// reach its processes.
final class Registered {
    let number: ApplicationNumber
    let id: ApplicationID
    let process: ProcessIdentity
    let user: UInt32
    /// logind's session and systemd's unit of the process at registration; empty if there is none.
    let session: String
    let unit: String
    /// Whether its history and saved state are to be kept under its id.
    let isToBeKept: Bool
    /// Whether they are: the disk has answered, and there are not too many.
    var isKept = false
    /// Whether others can find it by its id: a sandboxed process chooses its own name.
    var isKnownByID = true
    private(set) var launchOptions: [(String, Variant)]
    /// The launch that started it, if a session agent did.
    var launch: Launch?
    /// The user's activity in it, which another device or another application may continue.
    var userActivity: UserActivity?
    /// How the daemon holds it, or is about to: recorded first.
    var hold: Hold?
    /// The processes that have the daemon's SIGSTOP.
    var signals: SignalStop?
    /// Why it was last stopped by signal, and not frozen.
    var freezerObjection = ""
    /// The settings that it got last; nil: its original values are restored.
    var row: ResourceRow?
    /// What was set for it; nil: it has not been examined yet.
    var ledger: ResourceLedger?
    /// The recorded lines that restore its original resources.
    var resources = ""

    /// CLOCK_REALTIME, microseconds: when it was registered, and when its state last changed. The life cycle knows only
    /// the monotonic clock, from which these cannot be computed later: the wall clock is set, and the machine sleeps.
    private(set) var registeredAt = Clock.realMicroseconds
    private(set) var stateSince = Clock.realMicroseconds
    /// How it has ended, for the signals about that.
    var ending: Ending?

    let path: String
    /// The id under which it is kept; nil: it is not.
    var kept: KeptID? { isKept ? toBeKept : nil }
    /// The id under which it is to be kept.
    var toBeKept: KeptID? { isToBeKept ? KeptID(user: user, application: id) : nil }
    /// As the D-Bus API writes it.
    var pid: UInt32 { UInt32(process.pid) }

    init(
        _ number: ApplicationNumber, id: ApplicationID, process: ProcessIdentity, user: UInt32,
        session: String, unit: String, isToBeKept: Bool, launchOptions: [(String, Variant)],
        launch: Launch? = nil
    ) {
        self.number = number
        self.id = id
        self.process = process
        self.user = user
        self.session = session
        self.unit = unit
        self.isToBeKept = isToBeKept
        self.launchOptions = LaunchOptions.sendable(launchOptions)
        self.launch = launch
        path = BusNames.path(ofApplication: number.rawValue)
    }
}

extension Registered {
    /// Its state has just changed.
    func noteStateChange() { stateSince = Clock.realMicroseconds }

    /// What `ApplicationRemoved` and `ApplicationReclaimed` say about its end.
    var endDetails: [(String, Variant)] {
        var details: [(EndDetail, Variant)] = []
        if !session.isEmpty { details.append((.session, .string(session))) }
        if let ending {
            details.append((.previousState, .string(ending.state.rawValue)))
            if let status = ending.status { details.append((.exitStatus, .int32(status))) }
            details.append((.unsavedChanges, .bool(ending.losesChanges)))
            details.append((.relaunch, .bool(ending.isRelaunched)))
        }
        return details.map { ($0.rawValue, $1) }
    }

    /// A launch, by the number that the session agent has given it.
    struct Launch: Equatable {
        /// nil: it can no longer be asked. It was on another bus, for example.
        var agent: ConnectionName?
        let number: UInt64
    }

    struct UserActivity {
        let type: String
        let info: [String: Variant]
        /// Its approximate size in a message.
        var bytes: Int { type.utf8.count + LaunchOptions.bytes(of: info.map { ($0, $1) }) }
    }

    /// The approximate size of its launch options and its user activity in a message.
    var contentBytes: Int { LaunchOptions.bytes(of: launchOptions) + (userActivity?.bytes ?? 0) }

    /// Adds the options of its own registration to those that it was launched with.
    func add(_ options: [(String, Variant)]) {
        let known = Set(launchOptions.map(\.0))
        // A client cannot set the information about the previous run.
        let others = options.filter { !known.contains($0.0) && LaunchOption(rawValue: $0.0) == nil }
        set(launchOptions + LaunchOptions.sendable(others))
    }

    /// Adds the options of its launch to those of its own registration, which came first. Those of the launch count, as
    /// if they had come first.
    func add(ofLaunch options: [(String, Variant)]) {
        let given = Set(options.map(\.0))
        set(launchOptions.filter { !given.contains($0.0) } + LaunchOptions.sendable(options))
    }

    private func set(_ options: [(String, Variant)]) {
        launchOptions = options.sorted { $0.0 < $1.0 }
    }
}

// MARK: Written down

extension Registered {
    /// The data about it that the next daemon needs, besides that of the life cycle and the hold.
    var recorded: [Record.Line] {
        var lines = [
            Record.Line("logind-session", session), Record.Line("unit", unit),
            Record.Line("real-times", String(registeredAt), String(stateSince)),
        ]
        if isToBeKept { lines.append(Record.Line("kept", "1")) }
        if let launch {
            lines.append(Record.Line("session-agent", launch.agent ?? "", String(launch.number)))
        }
        if let userActivity {
            let fields = Variant.fields(of: userActivity.info)
            lines.append(Record.Line("user-activity", [userActivity.type] + fields))
        }
        for (key, value) in launchOptions {
            if let texts = value.texts { lines.append(Record.Line("launch-option", [key] + texts)) }
        }
        return lines
    }

    convenience init(_ record: Record) throws(Record.Flaw) {
        let process = try record.require("process") { ProcessID(&$0) }.identity
        let user: UInt32 = try record.require("user") { $0.number() }
        let options = try record.all("launch-option") { fields -> (String, Variant)? in
            guard let key = fields.text(), let value = Variant(texts: &fields.rest) else { return nil }
            return (key, value)
        }
        self.init(
            ApplicationNumber(try record.require("number") { $0.number() }),
            id: try record.require("id") { $0.text().flatMap(ApplicationID.init) }, process: process,
            user: user, session: try record.optional("logind-session") { $0.text() } ?? "",
            unit: try record.optional("unit") { $0.text() } ?? "", isToBeKept: record["kept"] != nil,
            launchOptions: options,
            launch: try record.optional("session-agent") { fields in
                guard let agent = fields.text(), let number: UInt64 = fields.number() else { return nil }
                return Launch(agent: agent.isEmpty ? nil : agent, number: number)
            })
        let times = try record.optional("real-times") { fields -> (UInt64, UInt64)? in
            guard let registered: UInt64 = fields.number(), let since: UInt64 = fields.number() else {
                return nil
            }
            return (registered, since)
        }
        if let times { (registeredAt, stateSince) = times }
        userActivity = try record.optional("user-activity") { fields in
            guard let type = fields.text(), case .dictionary(let info)? = Variant(texts: &fields.rest) else {
                return nil
            }
            return UserActivity(type: type, info: info)
        }
    }
}

extension ProcessID {
    init(_ identity: ProcessIdentity) {
        self.init(pid: identity.pid, startTime: identity.startTime)
    }
}

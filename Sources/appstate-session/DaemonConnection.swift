import AppStateBus
import AppStateContract
import Systemd

/// The connection to the daemon, with what the daemon should know of this session.
///
/// The agent sets the desired values. `reconcile()` compares them with what this daemon has accepted, and sends what
/// differs, always the whole set. After a reconnection nothing is accepted yet, so everything is sent anew. Of each
/// subject one call is on its way at a time. What changes meanwhile becomes one call: neither the bus nor a slow daemon is
/// flooded, and the last state always arrives.
final class DaemonConnection {
    // MARK: What the daemon should know

    /// Nil: no windows are known, so this connection must not be a reporter. While a session has none, policy suspends
    /// nothing in it.
    var windows: [ReportedWindow]? {
        didSet { if windows == nil, oldValue != nil { reconnect() } }
    }
    /// The processes that must not be suspended by policy. They end with the connection.
    var objections: [Objection] = []
    /// The rules of applications, by their objects; nil: there is none, and the daemon is told so.
    var rules: [String: NamedRule?] = [:]
    /// The suspended applications that are needed. Those that no daemon has accepted are told to the next one.
    private var demands = Demands()
    /// How this agent serves the daemon: launching, presenting.
    private let registrations: [ManagerMethod]
    /// The logind session to report for; nil: the daemon determines it.
    private let session: String?

    // MARK: What the daemon has accepted

    private struct Accepted {
        var isInSession = false
        var windows: [ReportedWindow]?
        /// Nil: uncertain, because a call was not answered.
        var objections: [Objection]? = []
        var rules: [String: NamedRule?] = [:]
        var registrations: Set<ManagerMethod> = []
        var isSubscribed = false
        var isListed = false
    }

    private var accepted = Accepted()

    // MARK: What the daemon tells

    var applications = Applications() {
        didSet { if applications != oldValue { agent?.applicationsChanged(from: oldValue) } }
    }
    /// The daemon's connection, once it is known.
    private(set) var daemon: String?
    private(set) var bus: Bus?
    var matches: [Slot] = []

    weak var agent: Agent?
    private let loop: EventLoop
    let journal: Journal
    private let log: ((String) -> Void)?
    /// The connection to the bus is lost.
    private var isLost = false
    /// The daemon's name has no owner. At the beginning there has been no answer yet, and the first call may start it.
    private var isAbsent = false
    private var calls: [Subject: Slot] = [:]
    /// What the daemon has refused for good, and what it may accept in a moment.
    private var refused: Set<Subject> = []
    private var deferred: Set<Subject> = []
    private var reconnection: Retry?
    private var repetition: Retry?
    private var titleTimer: Timer?
    /// Runs while a title has changed, and nothing else with it.
    private var isTitleTimerArmed = false

    /// What a call is about.
    private enum Subject: Hashable {
        case session, windows, objections, subscription, list
        case registration(ManagerMethod)
        case rule(_ path: String)
        case demand(_ pid: Int32)
    }

    /// How long a title that has changed alone may wait, in microseconds: some titles change every second.
    private static let titleDelay: UInt64 = 5_000_000
    /// A connection to the bus may have 128 replies pending: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 16

    /// - Parameters:
    ///   - registrations: `RegisterLauncher`, `RegisterPresenter`.
    ///   - log: gets a line for each call.
    init(
        loop: EventLoop, session: String?, registrations: [ManagerMethod], journal: Journal,
        log: ((String) -> Void)?
    ) throws(BusFailure) {
        self.loop = loop
        self.session = session
        self.registrations = registrations
        self.journal = journal
        self.log = log
        reconnection = try Retry(loop) { [unowned self] in reconnect() }
        repetition = try Retry(loop, after: 2_000_000) { [unowned self] in
            deferred = []
            reconcile()
        }
        titleTimer = try loop.timer { [unowned self] in
            isTitleTimerArmed = false
            if let windows, let known = accepted.windows, windows != known { try? send(windows) }
        }
    }

    // MARK: The bus

    /// Connects to the system bus.
    func connect() throws(BusFailure) { try use(try Bus.system()) }

    /// Uses a connection to the bus on which the daemon is.
    func use(_ bus: Bus) throws(BusFailure) {
        try bus.attach(to: loop)
        try bus.onDisconnect { [unowned self] in lose("the connection to the system bus is lost") }
        self.bus = bus
        matches = [
            try bus.watchOwner(
                of: BusNames.service, failed: { [unowned self] in deaf($0) },
                handler: { [unowned self] _, owner in daemonChanged(to: owner) })
        ]
        matches += try applicationMatches(on: bus)
        try agent?.connected(over: bus)
        reconcile()
    }

    /// The bus refuses a match rule for the daemon.
    func deaf(_ error: MethodError) { lose("the system bus does not report changes: \(error)") }

    private func lose(_ why: String) {
        // All pending calls fail with the connection.
        guard !isLost else { return journal.log(.debug, why) }
        isLost = true
        journal.log(.warning, why)
        applications.isKnown = false
        // The connection must not be closed from within its own handler.
        reconnection?.schedule()
    }

    private func reconnect() {
        // Windows that are known again do not wait for this.
        reconnection?.cancel()
        (calls, matches, refused, deferred) = ([:], [], [], [])
        (bus, daemon, isAbsent, accepted) = (nil, nil, false, Accepted())
        applications.isKnown = false
        agent?.disconnected()
        do throws(BusFailure) {
            reconnection?.hasSucceeded()
            isLost = false
            try connect()
        } catch {
            reconnection?.schedule()
        }
    }

    private func daemonChanged(to owner: String?) {
        daemon = owner
        isAbsent = owner == nil
        (calls, refused, deferred, accepted) = ([:], [], [], Accepted())
        accepted.objections = nil
        demands.forget()
        if isAbsent {
            journal.log(.info, "\(BusNames.service) has no owner: windows are reported when it has one")
        }
        applications.isKnown = false
        agent?.daemonChanged()
        reconcile()
    }

    /// Waits until the bus has taken all calls.
    func finish() { try? bus?.flush() }

    // MARK: Reconciling

    /// Sends what the daemon should know and does not.
    func reconcile() {
        guard bus != nil, !isLost, !isAbsent else { return }
        do {
            for method in registrations where !accepted.registrations.contains(method) {
                try send(
                    .registration(method), method, { [session] in try $0.append(session ?? "") },
                    answered: { [unowned self] _ in accepted.registrations.insert(method) })
            }
            guard windows != nil else { return }
            // Objections come before the windows, after which the daemon begins to suspend.
            try sendObjections()
            try sendWindows()
            try follow()
            try sendRules()
            try sendDemands()
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func sendObjections() throws {
        guard objections != accepted.objections, isDue(.objections) else { return }
        let sent = objections
        accepted.objections = nil
        try send(
            .objections, ReporterMethod.replaceObjections,
            { message in
                try message.withContainer(.array, "(us)") {
                    for objection in sent {
                        try message.withContainer(.struct, "us") {
                            try message.append(objection.pid)
                            try message.append(objection.reason.rawValue)
                        }
                    }
                }
            }, answered: { [unowned self] _ in accepted.objections = sent })
        log?(Self.text(ReporterMethod.replaceObjections, sent))
    }

    private func sendWindows() throws {
        guard let windows, windows != accepted.windows, isDue(.windows) else { return }
        let known = accepted.windows?.map(\.untitled)
        if known == windows.map(\.untitled) {
            if !isTitleTimerArmed { titleTimer?.arm(at: loop.now + Self.titleDelay) }
            isTitleTimerArmed = true
        } else {
            try send(windows)
        }
    }

    private func send(_ windows: [ReportedWindow]) throws {
        if let session, !accepted.isInSession {
            try send(
                .session, ReporterMethod.setSession, { try $0.append(session) },
                answered: { [unowned self] _ in accepted.isInSession = true })
        }
        let isFirst = accepted.windows == nil
        accepted.windows = nil
        try send(
            .windows, ReporterMethod.replaceWindows,
            { message in
                try message.withContainer(.array, "(tua{sv})") {
                    for window in windows {
                        try message.withContainer(.struct, "tua{sv}") { try window.write(to: message) }
                    }
                }
            },
            answered: { [unowned self] _ in
                accepted.windows = windows
                if isFirst { journal.log(.info, "all windows are reported to \(BusNames.service)") }
            })
        log?(Self.text(ReporterMethod.replaceWindows, windows))
    }

    /// Subscribes, and then asks for the list: what changes in between is heard.
    private func follow() throws {
        if !accepted.isSubscribed {
            try send(
                .subscription, ManagerMethod.subscribe,
                answered: { [unowned self] _ in accepted.isSubscribed = true })
        } else if !accepted.isListed {
            try send(
                .list, ManagerMethod.listApplications,
                answered: { [unowned self] reply in
                    accepted.isListed = true
                    take(listIn: reply)
                })
        }
    }

    /// The daemon has withheld signals: what it has told may be out of date.
    func listAgain() {
        accepted.isListed = false
        calls[.list] = nil
        reconcile()
    }

    /// Another client may have sent another rule, so an application without a rule is told about, too.
    private func sendRules() throws {
        accepted.rules = accepted.rules.filter { rules.keys.contains($0.key) }
        let due = rules.filter { path, rule in accepted.rules[path] != .some(rule) && isDue(.rule(path)) }
        for (path, rule) in due.prefix(Self.mostCalls) {
            accepted.rules[path] = nil
            try send(
                .rule(path), ApplicationMethod.configure, at: path,
                { try $0.appendDictionary(rule?.entries ?? []) },
                declined: { [unowned self] in accepted.rules[path] = .some(rule) },
                answered: { [unowned self] _ in accepted.rules[path] = .some(rule) })
            if let rule { log?("\(ApplicationMethod.configure.rawValue) \(path): \(rule.name)") }
        }
    }

    private func sendDemands() throws {
        for (pid, demand) in demands.due.filter({ isDue(.demand($0.key)) }).prefix(Self.mostCalls) {
            try send(
                .demand(pid), ReporterMethod.reportDemand,
                { try demand.write(to: $0, about: pid) },
                declined: { [unowned self] in demands.settle(pid, demand) },
                answered: { [unowned self] _ in
                    demands.settle(pid, demand)
                    demands.noteAccepted(pid, demand, at: loop.now)
                })
            log?(
                "\(ReporterMethod.reportDemand.rawValue) pid \(pid): \(demand.reason.rawValue) by pid "
                    + "\(demand.other)")
        }
    }

    /// The application of this process is needed.
    ///
    /// - Parameter other: the process that needs it; 0: not known.
    func need(_ pid: Int32, _ reason: DemandReason, by other: Int32) {
        demands.note(pid, reason, by: other, at: loop.now)
        reconcile()
    }

    /// The same, for callers that cannot continue before it is reported: this does not wait for the answer.
    func urge(_ pid: Int32, _ reason: DemandReason) {
        need(pid, reason, by: 0)
        try? bus?.flush()
    }

    // MARK: Calls

    /// Whether no answer is awaited.
    var isSettled: Bool { calls.isEmpty }

    private func isDue(_ subject: Subject) -> Bool {
        calls[subject] == nil && !refused.contains(subject) && !deferred.contains(subject)
    }

    /// - Parameters:
    ///   - declined: called when the daemon refuses what the call says. Without this, nothing more is sent of the subject
    ///     until another daemon comes.
    private func send<Name: MethodName>(
        _ subject: Subject, _ method: Name, at path: String = BusNames.root,
        _ write: (borrowing Message) throws -> Void = { _ in },
        declined: (() -> Void)? = nil,
        answered: @escaping (borrowing Message) -> Void
    ) throws {
        guard let bus, isDue(subject) else { return }
        let message = try bus.newCall(method, at: path)
        // Only the first call starts the daemon. If the daemon we know has just gone, its stop is not undone.
        if daemon != nil { try message.forbidStart() }
        try write(message)
        calls[subject] = try bus.callAsync(message) { [unowned self] reply in
            calls[subject] = nil
            if let error = reply.error {
                refuse(subject, method.rawValue, error, declined)
            } else {
                daemon = reply.sender
                repetition?.reset()
                answered(reply)
            }
            reconcile()
        }
    }

    private func refuse(
        _ subject: Subject, _ method: String, _ error: MethodError, _ declined: (() -> Void)?
    ) {
        let name = ErrorName(rawValue: error.name)
        // The process has ended, or is no longer an application.
        let isGone = name == .noSuchProcess || name == .noSuchApplication
        journal.log(
            isGone ? .debug : subject == .session ? .warning : .info,
            "\(BusNames.service) does not accept \(method): \(error)")
        // It is slow, or too many calls are in progress.
        if error.isNoReply || name == .limitsExceeded {
            deferred.insert(subject)
            repetition?.schedule()
        } else if let declined {
            declined()
        } else {
            refused.insert(subject)
        }
    }

    private static func text(_ method: ReporterMethod, _ rows: [some CustomStringConvertible]) -> String {
        (["\(method.rawValue) \(rows.count)"] + rows.map { "  \($0)" }).joined(separator: "\n")
    }
}

/// A process that must not be suspended by policy, and why.
struct Objection: Equatable, CustomStringConvertible {
    let pid: UInt32
    let reason: ObjectionReason

    var description: String { "\(reason.rawValue) pid \(pid)" }
}

extension Bus {
    /// A call to the daemon, to be filled and sent.
    func newCall<Name: MethodName>(
        _ method: Name, at path: String = BusNames.root
    ) throws(BusFailure) -> Message {
        try newCall(
            destination: BusNames.service, path: path, interface: Name.interface, member: method.rawValue)
    }
}

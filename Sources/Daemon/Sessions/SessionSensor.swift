import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// Which sessions are in front, and which are locked: logind's `Active` and `LockedHint` of the sessions that contain
/// applications or reporters.
///
/// A session counts as being in front until logind has reported otherwise. The last report remains valid
/// while logind reports nothing new: while it hangs, or is being restarted, for at most `patience`. Without
/// logind, every session is in front.
final class SessionSensor {
    private final class Watched {
        /// nil until logind has named it.
        var path: String?
        /// The pending query.
        var question: Slot?
        var isActive = true
        var isLocked = false
        /// What was last reported.
        var reported: (inFront: Bool, isLocked: Bool)?
    }

    private let logind: BusPeer
    private let journal: Journal
    private let core: Core
    private let now: () -> Microseconds
    /// When a session was added or removed, or logind was restarted.
    private var listChangedAt: Microseconds = 0
    private var watched: [String: Watched] = [:]
    private var absence: Timer?

    /// How long a logind that has left may take to come back: its restart takes less than a second.
    private static let patience: Microseconds = 3_000_000

    init(
        loop: EventLoop, logind: BusPeer, journal: Journal, now: @escaping () -> Microseconds, core: Core
    ) throws {
        self.logind = logind
        self.journal = journal
        self.core = core
        self.now = now
        absence = try loop.timer { [weak self] in self?.giveUp() }
    }

    /// Watches logind. A session is watched once it contains something.
    func start() throws(BusFailure) {
        logind.onOwnerChange { [weak self] in self?.ownerChanged() }
        try logind.onSignal(Logind.rule("SessionNew")) { [weak self] in self?.appeared($0) }
        try logind.onSignal(Logind.rule("SessionRemoved")) { [weak self] in self?.disappeared($0) }
        try logind.onSignal(
            "path_namespace='\(Logind.sessions)',interface='\(BusNames.properties)',"
                + "member='PropertiesChanged',arg0='\(Logind.session)'"
        ) { [weak self] in self?.changed($0) }
    }

    /// This session contains something, so logind's reports about it are passed on from now on.
    func attend(to key: SessionKey) {
        guard case .login(let id) = key, watched[id] == nil else { return }
        watched[id] = Watched()
        ask(about: id)
    }

    // MARK: The session of a process

    /// A connection's session is remembered. It is only remembered briefly just after the list has changed: logind sends
    /// its signal before it has written all its files.
    private static let settling: Microseconds = 1_000_000
    private static let unsettledMemory: Microseconds = 100_000

    /// The session of a connection: what it has said as a reporter, else logind's, else its user's display session, else
    /// all that its user runs.
    func key(of connection: Connection) -> SessionKey {
        if let said = core.machine.session(ofReporter: connection.name) { return said }
        let now = now()
        // Each subscriber's is needed whenever the focus changes.
        if let known = connection.session, known.readAt > listChangedAt,
            known.readAt >= listChangedAt + Self.settling || now < known.readAt + Self.unsettledMemory
        {
            return known.key
        }
        let session = key(ofProcess: connection.pid, user: connection.user)
        connection.session = (session, now)
        return session
    }

    /// The process's own session if that belongs to its user, else its user's display session. A process that
    /// runs as a user other than its session's (su(1)) does not report for that session. Root's windows may
    /// be shown anywhere.
    func key(ofProcess pid: Int32, user: UInt32) -> SessionKey {
        if let own = Login.session(ofProcess: pid), let owner = Login.owner(ofSession: own),
            owner == user || user == 0
        {
            return .login(own)
        }
        return Login.displaySession(ofUser: user).map(SessionKey.login) ?? .user(user)
    }

    // MARK: Questions

    private func ownerChanged() {
        listChangedAt = now()
        guard logind.owner != nil else {
            absence?.arm(at: now() + Self.patience)
            return
        }
        absence?.disarm()
        for id in watched.keys.sorted() { ask(about: id) }
    }

    /// No process is left that could report that a session is not in front.
    private func giveUp() {
        for (id, session) in watched.sorted(by: { $0.key < $1.key }) {
            session.isActive = true
            session.isLocked = false
            reportSession(id)
        }
    }

    /// Queries the path first, then the properties. A pending query is repeated.
    private func ask(about id: String) {
        watched[id]?.path = nil
        question(about: id, Logind.path, Logind.manager, "GetSession", id) { sensor, session, reply throws in
            session.path = try reply.readObjectPath()
            sensor.askProperties(of: id)
        }
    }

    private func askProperties(of id: String) {
        guard let path = watched[id]?.path else { return ask(about: id) }
        question(about: id, path, BusNames.properties, "GetAll", Logind.session) {
            sensor, session, reply throws in
            let properties = try reply.readDictionary()
            guard case .bool(let isActive)? = properties.first(where: { $0.key == "Active" })?.value else {
                throw MethodError(.invalidArgs, "Active is missing")
            }
            session.isActive = isActive
            switch properties.first(where: { $0.key == "LockedHint" })?.value {
            case .bool(let isLocked)?: session.isLocked = isLocked
            // systemd before 230 has no LockedHint.
            case nil: session.isLocked = false
            case _?: throw MethodError(.invalidArgs, "LockedHint is not a boolean")
            }
            sensor.reportSession(id)
        }
    }

    private func question(
        about id: String, _ path: String, _ interface: String, _ member: String, _ argument: String,
        _ answered: @escaping (SessionSensor, Watched, borrowing Message) throws -> Void
    ) {
        guard let session = watched[id] else { return }
        journal.attempt(.warning, "cannot ask logind about session \(id.shortened)") {
            session.question = try logind.call(path, interface, member, argument) { [weak self] reply in
                guard let self, let session = watched[id] else { return }
                session.question = nil
                if let error = reply.error { return failed(id, member, error) }
                journal.attempt(.warning, "cannot read logind's answer about session \(id.shortened)") {
                    try answered(self, session, reply)
                }
            }
        }
    }

    private func failed(_ id: String, _ member: String, _ error: MethodError) {
        let isGone = [Logind.noSuchSession, "org.freedesktop.DBus.Error.UnknownObject"].contains(error.name)
        if isGone {
            end(id)
        } else if logind.owner != nil {
            journal.log(.warning, "logind's \(member) of session \(id.shortened): \(error)")
        }
    }

    // MARK: Signals

    private func appeared(_ message: borrowing Message) {
        listChangedAt = now()
        guard let id = try? message.readString() else { return }
        if watched[id] != nil {
            ask(about: id)
        } else if core.machine.sessionsInUse.contains(.login(id)) {
            attend(to: .login(id))
        }
    }

    private func disappeared(_ message: borrowing Message) {
        listChangedAt = now()
        guard let id = try? message.readString() else { return }
        end(id)
    }

    private func end(_ id: String) {
        guard watched.removeValue(forKey: id) != nil else { return }
        core.report(.sessionEnded(.login(id)))
    }

    private func changed(_ message: borrowing Message) {
        guard let entry = watched.first(where: { $0.value.path == message.path }) else {
            // The signal may be about a session whose path logind has not given, for example after an answer that never
            // came.
            for id in watched.keys.sorted() where watched[id]?.path == nil && watched[id]?.question == nil {
                ask(about: id)
            }
            return
        }
        let (id, session) = (entry.key, entry.value)
        do {
            _ = try message.readString()
            let changes = try message.readDictionary()
            let invalidated = try message.readStrings()
            var isClear = !invalidated.contains("Active") && !invalidated.contains("LockedHint")
            for (name, value) in changes where name == "Active" || name == "LockedHint" {
                switch (name, value) {
                case ("Active", .bool(let isActive)): session.isActive = isActive
                case (_, .bool(let isLocked)): session.isLocked = isLocked
                default: isClear = false
                }
            }
            guard isClear else { return askProperties(of: id) }
        } catch {
            journal.log(.warning, "cannot read logind's signal about session \(id.shortened): \(error)")
            return askProperties(of: id)
        }
        reportSession(id)
    }

    private func reportSession(_ id: String) {
        guard let session = watched[id] else { return }
        let word = (inFront: session.isActive && !session.isLocked, isLocked: session.isLocked)
        if let reported = session.reported, reported == word { return }
        session.reported = word
        core.report(.session(.login(id), inFront: word.inFront, isLocked: word.isLocked))
    }
}

/// org.freedesktop.login1 on the system bus.
enum Logind {
    static let name = "org.freedesktop.login1"
    static let path = "/org/freedesktop/login1"
    static let manager = "org.freedesktop.login1.Manager"
    static let session = "org.freedesktop.login1.Session"
    static let sessions = "/org/freedesktop/login1/session"
    /// logind's error about a session that no longer exists.
    static let noSuchSession = "org.freedesktop.login1.NoSuchSession"

    /// The match rule for the manager's signals of this kind (org.freedesktop.login1(5)).
    static func rule(_ member: String) -> String {
        "path='\(path)',interface='\(manager)',member='\(member)'"
    }
}

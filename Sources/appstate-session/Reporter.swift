import AppStateBus
import AppStateContract
import Systemd
import Windows

/// Reports windows to the daemon: the whole set to each daemon that appears, then the changes.
final class Reporter: DaemonSpeaker {
    private let bus: Bus
    private let loop: EventLoop
    private let line: DaemonLine
    private let session: String?
    private let journal: Journal
    private let log: ((Report) -> Void)?
    /// The current windows.
    private var present: [Report.Window] = []
    /// The windows that the daemon knows. Nil: it knows none of ours.
    private var told: [UInt64: Report.Window]?
    /// The windows may have other numbers than those that the daemon knows.
    private var isRenumbered = false
    /// The daemon has not answered since the whole set had to be sent.
    private var isUntold = false
    /// For titles that have changed, and nothing else with them.
    private var titleTimer: Timer?
    private var isTitleTimerArmed = false
    private var areTitlesDue = false
    /// How many windows the daemon has room for; nil: for all, as far as is known.
    private var room: Int?

    /// How long a title that has changed alone may wait, in microseconds.
    private static let titleDelay: UInt64 = 5_000_000

    /// A connection to the bus may have 128 replies pending: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 64

    /// - Parameters:
    ///   - deaf: called if the bus refuses a match rule for the daemon.
    ///   - session: the session for SetSession; nil: SetSession is not called.
    ///   - log: gets each report that is sent.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, session: String?, journal: Journal,
        log: ((Report) -> Void)?
    ) throws(BusFailure) {
        self.bus = bus
        self.loop = loop
        self.session = session
        self.journal = journal
        self.log = log
        line = try DaemonLine(bus: bus, loop: loop, deaf: deaf, journal: journal)
        line.speaker = self
        titleTimer = try loop.timer { [unowned self] in
            isTitleTimerArmed = false
            areTitlesDue = true
            line.proceed()
        }
    }

    /// Sets the current windows. They are sent as soon as the daemon can be called.
    func report(_ windows: [Report.Window]) {
        present = Report.withOneFocus(windows)
        if let room, present.count <= room { self.room = nil }
        line.proceed()
    }

    /// The next windows come from another observer, which may have given them new numbers.
    func beginAnew() { isRenumbered = true }

    /// Waits until the bus has taken all reports.
    func finish() {
        try? bus.flush()
    }

    // MARK: Reports

    func speak() throws {
        let windows = room.map { Array(Report.mostImportantFirst(present).prefix($0)) } ?? present
        guard let told else {
            try sendSession()
            return try send(.replace(windows))
        }
        let changes = Report.changes(from: told, to: windows, withTitles: areTitlesDue)
        areTitlesDue = false
        if room != nil {
            // A window without room is not closed, so it is not removed.
            if !changes.isEmpty { try send(.replace(windows)) }
        } else {
            let renumbering = Report.renumbering(from: told, to: windows, all: isRenumbered)
            if case .remove? = renumbering?.first {} else { isRenumbered = false }
            for report in (renumbering ?? changes).prefix(Self.mostCalls) { try send(report) }
        }
        if !isTitleTimerArmed, isTitleOld {
            isTitleTimerArmed = true
            titleTimer?.arm(at: loop.now + Self.titleDelay)
        }
    }

    /// Whether the daemon knows a window by a former title.
    private var isTitleOld: Bool {
        guard let told else { return false }
        return present.contains { window in
            told[window.number].map { $0.observed.title != window.observed.title } ?? false
        }
    }

    func forget() {
        told = nil
        room = nil
        isUntold = true
        if line.isAbsent {
            journal.log(.info, "\(BusNames.service) has no owner: windows are reported when it has one")
        }
    }

    private func sendSession() throws {
        guard let session else { return }
        try line.call(
            ReporterMethod.setSession, { try $0.append(session) },
            refused: { [journal] error in
                journal.log(.warning, "cannot report for session \(session): \(error)")
            })
    }

    private func send(_ report: Report) throws {
        try line.call(
            report.method, { try report.write(to: $0) },
            refused: { [unowned self] error in refused(report, error) },
            answered: { [unowned self] _ in
                line.haveRoom()
                guard isUntold else { return }
                isUntold = false
                journal.log(.info, "all windows are reported to \(BusNames.service)")
            })
        log?(report)
        var known = told ?? [:]
        // With a second owner, the change would copy all windows, for each of many reports.
        told = nil
        report.apply(to: &known)
        told = known
    }

    private func refused(_ report: Report, _ error: MethodError) {
        switch ErrorName(rawValue: error.name) {
        case .noSuchProcess:
            // The windows of the process will be gone in a moment.
            journal.log(.debug, "\(report): \(error.message)")
        case .limitsExceeded:
            // The whole set follows, with fewer windows if that is refused again and again.
            told = nil
            if line.tryAgainForRoom("does not accept a report", error) { return }
            guard case .replace(let windows) = report else { return }
            room = windows.count * 7 / 8
            if room == 0 { line.refused(error, "does not accept reports", .error) }
        case .accessDenied, .invalidArgs, .notSupported:
            line.refused(error, "does not accept reports", .error)
        default:
            line.refused(error, "cannot receive reports of windows")
        }
    }
}

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
    /// The daemon had no room for a window, and does not know all changes since then.
    private var lacksRoom = false
    /// For titles that have changed, and nothing else with them.
    private var titleTimer: Timer?
    private var isTitleTimerArmed = false
    private var areTitlesDue = false
    /// How often the daemon had no room for each window that it does not know.
    private var refusals: [UInt64: Int] = [:]

    /// A window that was refused as often as this is left out until another window is gone.
    private static let mostRefusals = 3

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
        if !refusals.isEmpty {
            let numbers = Set(present.map(\.number))
            refusals = refusals.filter { numbers.contains($0.key) }
        }
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
        if let told, let reports = Report.renumbering(from: told, to: present, all: isRenumbered) {
            for report in reports.prefix(Self.mostCalls) {
                guard case .replace = report else {
                    try send(report)
                    continue
                }
                isRenumbered = false
                // What was refused would have the whole set refused. It follows on its own.
                try send(.replace(present.filter { refusals[$0.number] == nil }))
            }
        } else if let told {
            isRenumbered = false
            let changes = Report.changes(
                from: told, to: present, makingRoom: lacksRoom, withTitles: areTitlesDue)
            areTitlesDue = false
            if changes.isEmpty { lacksRoom = false }
            // What was refused must not keep other windows waiting.
            let others = changes.filter { !wasRefused($0) }
            for report in (others + changes.filter(wasRefused)).prefix(Self.mostCalls) { try send(report) }
        } else {
            try sendSession()
            try send(.replace(present))
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

    private func wasRefused(_ report: Report) -> Bool { report.number.map { refusals[$0] != nil } ?? false }

    func forget() {
        told = nil
        refusals = [:]
        isUntold = true
        lacksRoom = false
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
        let former = report.number.flatMap { told?[$0] }
        let focused = told?.values.first(where: \.observed.focused)?.number
        try line.call(
            report.method, { try report.write(to: $0) },
            refused: { [unowned self] error in
                if !isTriedAgain(report, after: error, former, focused: focused) { refused(report, error) }
            },
            answered: { [unowned self] _ in
                line.haveRoom()
                accepted(report)
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

    // MARK: Refusals

    private func accepted(_ report: Report) {
        if let number = report.number { refusals[number] = nil }
        guard case .remove = report else { return }
        // There may be room for windows that were left out. They are tried once.
        for (number, count) in refusals where count >= Self.mostRefusals { told?[number] = nil }
    }

    /// - Parameters:
    ///   - former: the window of the report, as the daemon knew it before.
    ///   - focused: the window that had the focus before.
    private func isTriedAgain(
        _ report: Report, after error: MethodError, _ former: Report.Window?, focused: UInt64?
    ) -> Bool {
        if let number = report.number, ErrorName(rawValue: error.name) == .limitsExceeded {
            guard refusals[number, default: 0] < Self.mostRefusals else { return false }
            refusals[number, default: 0] += 1
        }
        guard line.tryAgainForRoom("does not accept a report", error) else { return false }
        lacksRoom = true
        // The daemon still knows what it knew before.
        guard let number = report.number else {
            told = nil
            return true
        }
        told?[number] = former
        if case .update(let window) = report, window.observed.focused, let focused {
            told?[focused]?.observed.focused = true
        }
        return true
    }

    private func refused(_ report: Report, _ error: MethodError) {
        switch (ErrorName(rawValue: error.name), report) {
        case (.noSuchProcess, _):
            // The windows of the process will be gone in a moment.
            journal.log(.debug, "\(report): \(error.message)")
            leaveOut(report)
        case (.limitsExceeded, .replace(let windows)) where !windows.isEmpty:
            // There are too many windows. Sent one by one, the surplus ones are left out, and no others.
            journal.log(
                .warning, "reporting window by window, because not all were accepted: \(error.message)")
            do {
                try send(.replace([]))
            } catch {
                journal.log(.debug, "\(error)")
            }
        case (.limitsExceeded, _):
            journal.log(.debug, "\(report): \(error.message)")
            leaveOut(report)
        case (.accessDenied, _), (.invalidArgs, _), (.notSupported, _):
            line.refused(error, "does not accept reports", .error)
        default:
            line.refused(error, "cannot receive reports of windows")
        }
    }

    /// The daemon does not know this window. If the window has the focus, no other window has it. The window's update
    /// would have implied that, so the loss of the focus is reported here.
    private func leaveOut(_ report: Report) {
        guard case .update(let window) = report, window.observed.focused else { return }
        do {
            try line.call(
                ReporterMethod.setFocus, { try $0.append(UInt32(0)) },
                refused: { [journal] error in
                    journal.log(.debug, "\(ReporterMethod.setFocus.rawValue) 0: \(error)")
                })
        } catch {
            journal.log(.debug, "\(error)")
        }
    }
}

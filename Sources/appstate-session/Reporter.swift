import AppStateBus
import AppStateContract
import Systemd
import Windows

/// Tells the daemon of windows: the whole set to each daemon that comes, then what changes.
///
/// Nothing is sent while an answer is awaited; what happens meanwhile is one change. So neither the bus nor a daemon
/// that is slow is flooded, and the last state always comes through.
final class Reporter {
    private let bus: Bus
    private let session: String?
    private let journal: Journal
    private let log: ((Report) -> Void)?
    /// What the windows are now.
    private var present: [Report.Window] = []
    /// What the daemon knows; nil where it knows nothing of us.
    private var told: [UInt64: Report.Window]?
    private var daemon = Daemon.unknown
    private var awaited = 0
    private var calls: [Slot] = []
    private var ownerChange: Slot?

    private enum Daemon {
        /// Nobody has answered yet: the first call may start it.
        case unknown
        case there
        /// Nobody owns the name, or nobody lets us speak: nothing is sent until it gets an owner.
        case absent
    }

    /// A connection to the bus may await 128 answers at once: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 64

    /// - Parameters:
    ///   - deaf: called when the bus does not tell of the daemon.
    ///   - session: for SetSession; nil: not called.
    ///   - log: gets each report that is sent.
    init(
        bus: Bus, deaf: @escaping (MethodError) -> Void, session: String?, journal: Journal,
        log: ((Report) -> Void)?
    ) throws(BusFailure) {
        self.bus = bus
        self.session = session
        self.journal = journal
        self.log = log
        ownerChange = try bus.watchOwner(of: BusNames.service, failed: deaf) { [unowned self] _, owner in
            greet(hasOwner: owner != nil)
        }
    }

    /// The windows as they are now, of which the daemon learns as soon as it listens.
    func report(_ windows: [Report.Window]) {
        present = windows
        send()
    }

    /// Waits until the bus has taken what was reported.
    func finish() {
        try? bus.flush()
    }

    // MARK: The daemon comes and goes

    private func greet(hasOwner: Bool) {
        calls = []
        awaited = 0
        told = nil
        daemon = hasOwner ? .there : .absent
        journal.log(.info, "\(BusNames.service) has \(hasOwner ? "an" : "no") owner")
        send()
    }

    // MARK: Reports

    private func send() {
        guard awaited == 0, daemon != .absent else { return }
        calls = []
        do {
            if let told {
                for report in Report.changes(from: told, to: present).prefix(Self.mostCalls) {
                    try send(report)
                }
            } else {
                try sendSession()
                try send(.replace(present))
            }
        } catch {
            // The connection is gone, which somebody else is told of.
            journal.log(.debug, "\(error)")
        }
    }

    private func sendSession() throws(BusFailure) {
        guard let session else { return }
        let message = try bus.newCall(ReporterMethod.setSession)
        try message.append(session)
        try call(message) { [journal] error in
            journal.log(.warning, "cannot report for session \(session): \(error)")
        }
    }

    private func send(_ report: Report) throws(BusFailure) {
        let message = try bus.newCall(report.method)
        try report.write(to: message)
        try call(message) { [unowned self] error in refused(report, error) }
        log?(report)
        var known = told ?? [:]
        report.apply(to: &known)
        told = known
    }

    private func call(_ message: borrowing Message, failed: @escaping (MethodError) -> Void)
        throws(BusFailure)
    {
        let slot = try bus.callAsync(message) { [unowned self] reply in
            awaited -= 1
            if let error = reply.error { failed(error) } else if daemon == .unknown { daemon = .there }
            send()
        }
        calls.append(slot)
        awaited += 1
    }

    // MARK: Refusals

    private func refused(_ report: Report, _ error: MethodError) {
        switch (ErrorName(rawValue: error.name), report) {
        case (.noSuchProcess, _):
            // Its windows will be gone in a moment.
            journal.log(.debug, "\(report): \(error.message)")
            leaveOut(report)
        case (.limitsExceeded, .replace(let windows)) where !windows.isEmpty:
            // One application has too many. What it has too many of is left out then, and no others.
            journal.log(.warning, "window by window, because not all were taken: \(error.message)")
            do {
                try send(.replace([]))
            } catch {
                journal.log(.debug, "\(error)")
            }
        case (nil, _) where error.isNoReply:
            // It is slow, or was replaced: what it knows is uncertain, and it is told anew.
            told = nil
        case (.limitsExceeded, _):
            journal.log(.debug, "\(report): \(error.message)")
            leaveOut(report)
        case (.accessDenied, _), (.invalidArgs, _), (.notSupported, _):
            journal.log(.error, "\(BusNames.service) does not take reports: \(error)")
            leave()
        default:
            // Nobody is there.
            journal.log(.info, "\(BusNames.service) cannot be told of windows: \(error)")
            leave()
        }
    }

    /// The daemon does not know this window. If it is the one that has the focus, nobody else has it, which would have
    /// gone without saying.
    private func leaveOut(_ report: Report) {
        guard case .update(let window) = report, window.observed.focused else { return }
        do {
            let message = try bus.newCall(ReporterMethod.setFocus)
            try message.append(UInt32(0))
            try call(message) { [journal] error in journal.log(.debug, "SetFocus 0: \(error)") }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    /// Nothing more until the name gets another owner.
    private func leave() {
        daemon = .absent
        told = nil
        awaited = 0
        calls = []
    }
}

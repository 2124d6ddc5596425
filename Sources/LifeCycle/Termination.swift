public import AppStateContract

/// An end of an application that was requested or decided, and its progress (§ 3, "WillTerminate").
struct Termination: Equatable, Sendable {
    private enum Phase: Equatable, Sendable {
        /// It was notified, or was to be. SIGTERM follows at `exit`, or earlier, once this serial is
        /// acknowledged. No serial: a stop has cancelled it. No time: there is no limit.
        case announced(serial: UInt64?, exit: Microseconds?, kill: Microseconds?)
        /// SIGTERM was sent.
        case exitRequested(kill: Microseconds?)
        /// SIGKILL was ordered when it was due. The next daemon does not know whether that was carried out.
        case killed(due: Microseconds)
        /// SIGKILL was ordered when the end was decided: nothing was announced.
        case killedAtOnce
    }

    /// What must be done.
    enum Order: Equatable {
        case requestExit
        case kill
    }

    /// `terminated`, `forceQuit` or `reclaimed`.
    private(set) var verdict: ExitReason
    private var phase: Phase

    /// It is killed now, without notice.
    static func atOnce(_ verdict: ExitReason) -> Self { Self(verdict: verdict, phase: .killedAtOnce) }

    /// - Parameters:
    ///   - exit: when SIGTERM is sent at the latest (CLOCK_MONOTONIC, µs); nil: not before it is acknowledged.
    ///   - kill: when SIGKILL is sent; nil: never.
    static func announced(
        _ verdict: ExitReason, serial: UInt64, exit: Microseconds?, kill: Microseconds?
    ) -> Self {
        Self(verdict: verdict, phase: .announced(serial: serial, exit: exit, kill: kill))
    }

    var isAtOnce: Bool { phase == .killedAtOnce }

    /// SIGTERM was sent, and nothing follows.
    var waitsForExit: Bool { phase == .exitRequested(kill: nil) }

    /// When SIGKILL is due; nil: it was already ordered, or never will be.
    var dueKill: Microseconds? {
        switch phase {
        case .announced(_, _, let kill), .exitRequested(let kill): kill
        case .killed, .killedAtOnce: nil
        }
    }

    /// When the next step is due.
    var nextDue: Microseconds? {
        if case .announced(_, let exit?, let kill) = phase { return min(exit, kill ?? exit) }
        return dueKill
    }

    /// A client has requested the end that was announced for another reason, and that no longer depends on it.
    mutating func request() { verdict = .terminated }

    /// The delegate has acknowledged this serial.
    mutating func acknowledge(_ serial: UInt64, at now: Microseconds) {
        if case .announced(serial, _, _) = phase { requestExit(at: now) }
    }

    /// No delegate is left that could acknowledge it, or the acknowledgement is no longer needed.
    mutating func requestExit(at now: Microseconds) {
        if case .announced(let serial, _, let kill) = phase {
            phase = .announced(serial: serial, exit: now, kill: kill)
        }
    }

    /// A stop cancels the pending acknowledgement. SIGTERM is sent now if nothing else would lead to it.
    mutating func cancelAcknowledgement(at now: Microseconds) {
        if case .announced(_, let exit, let kill) = phase {
            phase = .announced(serial: nil, exit: exit ?? now, kill: kill)
        }
    }

    /// The delegate that was notified is replaced. The next one was not, and may never acknowledge: SIGTERM is sent now if
    /// nothing else is sure to lead to it.
    mutating func delegateReplaced(at now: Microseconds) {
        if case .announced(let serial, nil, let kill) = phase {
            phase = .announced(serial: serial, exit: now, kill: kill)
        }
    }

    /// Returns the steps that are due by now; they then count as done.
    mutating func advance(at now: Microseconds) -> Order? {
        switch phase {
        case .announced(_, let exit?, let kill) where exit <= now:
            phase = .exitRequested(kill: kill)
            return .requestExit
        case .announced(_, _, let kill?) where kill <= now, .exitRequested(let kill?) where kill <= now:
            phase = .killed(due: kill)
            return .kill
        case .announced, .exitRequested, .killed, .killedAtOnce: return nil
        }
    }
}

extension Termination {
    /// If SIGKILL was due, the next daemon orders it again.
    var fields: [String] {
        func text(_ number: UInt64?) -> String { number.map { String($0) } ?? "" }
        let words =
            switch phase {
            case .announced(let serial, let exit, let kill):
                ["announced", text(serial), text(exit), text(kill)]
            case .exitRequested(let kill): ["exit-requested", text(kill)]
            case .killed(let due): ["exit-requested", text(due)]
            case .killedAtOnce: ["at-once"]
            }
        return [verdict.rawValue] + words
    }

    init?(_ fields: inout Fields) {
        guard let verdict: ExitReason = fields.value() else { return nil }
        self.verdict = verdict
        switch fields.text() {
        case "announced":
            guard let serial = fields.optional({ UInt64($0) }),
                let exit = fields.optional({ Microseconds($0) }),
                let kill = fields.optional({ Microseconds($0) })
            else { return nil }
            phase = .announced(serial: serial, exit: exit, kill: kill)
        case "exit-requested":
            guard let kill = fields.optional({ Microseconds($0) }) else { return nil }
            phase = .exitRequested(kill: kill)
        case "at-once": phase = .killedAtOnce
        default: return nil
        }
    }
}

/// How an application ended. The next launch of the same id by its user receives this (lifecycle.md § 7).
public struct Ending: Equatable, Sendable {
    public let reason: ExitReason
    /// The state in which it ended.
    public let state: LifeCycleState
    /// The exit status, or the signal that ended it; nil: it is not known.
    public let status: Int32?
    /// Its saved state must not be given to the next launch.
    public let dropsSavedState: Bool
    /// As far as was known, its end has lost unsaved changes.
    public internal(set) var losesChanges = false
    /// It will be launched again by itself (`Rule.relaunchReclaimed`).
    public internal(set) var isRelaunched = false
}

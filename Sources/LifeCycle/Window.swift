public import AppStateContract

/// Identifies one window in the machine.
struct WindowKey: Hashable, Comparable, Sendable {
    /// The connection that reported it; empty: `SetFocus` or `SetMinimized` did, and it means all windows of a
    /// process.
    let reporter: ConnectionName
    /// The reporter's own number, or the pid.
    let number: UInt64

    static func whole(_ process: ProcessID) -> WindowKey {
        WindowKey(reporter: "", number: UInt64(process.pid))
    }

    var isWhole: Bool { reporter.isEmpty }

    /// Any order that is the same in every run: the handling of windows must not depend on hashing.
    static func < (left: Self, right: Self) -> Bool {
        left.reporter == right.reporter ? left.number < right.number : left.reporter < right.reporter
    }
}

/// What was reported about a window. Its session says whether it has the focus.
struct Window: Equatable, Sendable {
    var session: SessionKey
    /// The process that owns the window, its parent, and so on, as they were when it was reported.
    var lineage: [ProcessID]
    /// The user of the reporter.
    var reporterUser: UInt32
    var visible = true
    var minimized = false
    /// It shows the mark of unsaved changes.
    var isUnsaved = false
    var title = ""
    var appID = ""
    /// The application whose extent the window is in.
    var owner: ApplicationNumber?

    var process: ProcessID? { lineage.first }
}

/// A window as clients see it.
public struct ShownWindow: Hashable, Sendable {
    /// Its reporter's number.
    public let number: UInt64
    public let title: String
    public internal(set) var state: SceneState
    public let isMinimized: Bool
    public let session: SessionKey
}

/// One login session, or one user if there is no logind.
struct Session: Equatable, Sendable {
    /// The only window that has the focus, unless it is minimized.
    var focus: WindowKey?
    /// logind's `Active` and not `LockedHint`.
    var inFront = true
    /// logind's `LockedHint`.
    var isLocked = false
    /// It has ended and is not in front; it is kept because of the entries that are left in it.
    var hasEnded = false
    var reporting = Reporting.present

    /// Whether the last of its reporters is gone (§ 2).
    enum Reporting: Equatable, Sendable {
        /// It has a reporter, or never had one.
        case present
        /// Policy adds no hold in it, and lifts its own then.
        case left(until: Microseconds)
        /// Policy suspends nothing in it until the next one reports.
        case lost
    }
}

/// A connection that reports windows.
struct Reporter: Equatable, Sendable {
    /// nil: root's, which reports each window for the session of its process, until it calls `SetSession`.
    var session: SessionKey?
    /// The sessions whose windows it has reported.
    var reported: Set<SessionKey> = []
}

/// One reporter's objection of one process that policy must not suspend.
struct ReportedObjection: Equatable, Sendable {
    /// The process, its parent, and so on, as they were when it was reported.
    var lineage: [ProcessID]
    /// The user of the reporter.
    var reporterUser: UInt32
    var reasons: Set<String>
}

extension ReportedObjection {
    /// As read from a record: with one reason.
    init?(_ fields: inout Fields) {
        guard let user: UInt32 = fields.number(), let reason = fields.text(),
            let lineage = fields.all({ ProcessID(&$0) }), !lineage.isEmpty
        else { return nil }
        self.init(lineage: lineage, reporterUser: user, reasons: [reason])
    }
}

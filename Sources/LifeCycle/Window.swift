public import AppStateContract

/// Identifies one window in the machine.
enum WindowKey: Hashable, Sendable {
    /// All windows of a process, as `SetFocus` and `SetMinimized` refer to them. If the process has windows that are
    /// reported one by one, this only carries the focus and disappears with it.
    case process(SessionKey, ProcessID)
    /// A reporter's own number.
    case reported(ConnectionName, UInt64)
}

extension WindowKey {
    /// Any order that is the same in every run: the handling of windows must not depend on hashing.
    static func inOrder(_ left: WindowKey, _ right: WindowKey) -> Bool {
        switch (left, right) {
        case (.process(let session, let process), .process(let otherSession, let other)):
            session == otherSession
                ? (process.pid, process.startTime) < (other.pid, other.startTime)
                : SessionKey.inOrder(session, otherSession)
        case (.reported(let connection, let number), .reported(let otherConnection, let other)):
            connection == otherConnection ? number < other : connection < otherConnection
        case (.process, .reported): true
        case (.reported, .process): false
        }
    }
}

extension SessionKey {
    /// Any order that is the same in every run.
    static func inOrder(_ left: SessionKey, _ right: SessionKey) -> Bool {
        left.description < right.description
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

extension Machine {
    /// nil: the entry stands for all windows of a process.
    func shown(_ window: Window, as key: WindowKey) -> ShownWindow? {
        guard case .reported(_, let number) = key else { return nil }
        let session = sessions[window.session]
        let isShown = !window.minimized && session?.inFront ?? true
        let state: SceneState =
            isShown && session?.focus == key
            ? .foregroundActive : isShown && window.visible ? .foregroundInactive : .background
        return ShownWindow(
            number: number, title: window.title, state: state, isMinimized: window.minimized,
            session: window.session)
    }
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
    /// Connections that have reported windows in this session and still exist.
    var lastingReporters: Set<ConnectionName> = []
    /// It had a permanent reporter and has none now: policy suspends nothing in it (§ 2).
    var lostReporter = false
}

/// A connection that reports windows.
struct Reporter: Equatable, Sendable {
    /// nil: root's, which reports each window for the session of its process, until it calls `SetSession`.
    var session: SessionKey?
    var user: UInt32
    var windows: Set<UInt64> = []
}

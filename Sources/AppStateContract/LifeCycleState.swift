/// The five states of an application, spelled as in the D-Bus API (docs/lifecycle, § 1).
public enum LifeCycleState: String, Hashable, Sendable, CaseIterable {
    /// Launching has not finished, or the process has ended.
    case notRunning = "not-running"
    /// A window is visible, but none has the focus. Every path to and from `active` passes through this state.
    case inactive
    /// One of its windows has the focus, in a session that is in front and unlocked.
    case active
    /// No window is visible; code still runs.
    case background
    /// Stopped or frozen: it is in memory, executes no code, and gets no signals.
    case suspended
}

/// One step between two states that the contract allows.
public struct Edge: Hashable, Sendable, CustomStringConvertible {
    public let from: LifeCycleState
    public let to: LifeCycleState

    /// Does not check whether the contract has an edge between the two states.
    public init(_ from: LifeCycleState, _ to: LifeCycleState) {
        self.from = from
        self.to = to
    }

    public var description: String { "\(from.rawValue)→\(to.rawValue)" }
}

/// Why a state changed: the last argument of `StateChanged`.
public enum StateChangeReason: String, Hashable, Sendable, CaseIterable {
    /// Launching finished, by `FinishLaunching` or because there was nothing to wait for.
    case launch
    /// `LaunchTimeoutSec` passed without `FinishLaunching`.
    case launchTimeout = "launch-timeout"
    /// A window reporter reported the focus.
    case focus
    /// A window reporter reported windows: shown, hidden, minimized, gone.
    case windows
    /// The login session came to the front, left it, was locked or unlocked.
    case session
    /// Another process stopped or continued the process.
    case signal
    /// A client requested it, by `Suspend`, `Resume` or `Terminate`.
    case request
    /// The daemon's own policy: the background grace period has passed, or memory is short.
    case policy
    /// The application is needed, so a suspension by policy ends.
    case demand
    /// The configuration was read again.
    case configuration
    /// The process has ended.
    case exit
}

/// Why an application ended (§ 7), the last argument of `ApplicationRemoved`.
public enum ExitReason: String, Hashable, Sendable, CaseIterable {
    case exited
    case crashed
    case killed
    /// The kernel's out-of-memory killer chose it when no memory was left.
    case outOfMemory = "out-of-memory"
    /// Ended by appstated, because memory was short.
    case reclaimed
    case terminated
    case forceQuit = "force-quit"
    case unresponsive
    case rebooted
    case unknown
    /// The application was removed with `Unregister`; its process keeps running.
    case unregistered
}

/// How much of a window its user has: the key `state` of `ListWindows`.
public enum SceneState: String, Hashable, Sendable, CaseIterable {
    /// It has the focus.
    case foregroundActive = "foreground-active"
    /// It is visible, and does not have the focus.
    case foregroundInactive = "foreground-inactive"
    /// It is not visible, or its application does not run.
    case background
}

/// Why an application is held suspended: the first part of an entry of `SuspendHolds`.
public enum HoldReason: String, Hashable, Sendable, CaseIterable {
    case policy
    case request
    case signal
    /// Requested by a client, until the application gets the focus.
    case toggle
    /// By the daemon, while the machine sleeps and until the network is back.
    case sleep

    /// The daemon's own decision, which focus and any objection override (§ 2).
    public var isDecision: Bool { self == .policy }
}

/// Whether the daemon may suspend an application by itself.
public enum SuspensionPolicy: String, Hashable, Sendable, CaseIterable {
    /// Suspended after the background grace period.
    case automatic
    /// Suspended only on request.
    case manual
    /// As `manual`, and `ListObjections` names it as an objection.
    case never
}

/// In which state the daemon may suspend an application by itself.
public enum SuspendWhen: String, Hashable, Sendable, CaseIterable {
    /// None of its windows is visible.
    case background
    /// None of its windows has the focus, though some may be visible.
    case inactive
    /// The machine sleeps, or has just woken up; then whatever its windows are.
    case sleep
}

/// How an application starts.
public enum LaunchMode: String, Hashable, Sendable, CaseIterable {
    /// Counts as visible until a reporter reports its windows.
    case foreground
    /// Counts as having no window until a reporter reports one.
    case background
}

/// How stops made by other processes are currently detected: the property `StopDetection`.
public enum StopDetection: String, Hashable, Sendable, CaseIterable {
    case events
    case polling
}

/// The levels of `MemoryPressure`.
public enum MemoryPressure: String, Hashable, Sendable, CaseIterable, Comparable {
    case normal
    case warning
    case critical

    public static func < (left: Self, right: Self) -> Bool { left.severity < right.severity }

    private var severity: Int {
        switch self {
        case .normal: 0
        case .warning: 1
        case .critical: 2
        }
    }
}

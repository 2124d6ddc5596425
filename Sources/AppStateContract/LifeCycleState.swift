/// The five states of an application, spelled as the D-Bus API spells them (docs/lifecycle, § 1).
public enum LifeCycleState: String, Hashable, Sendable, CaseIterable {
    /// Launching has not finished, or the process has ended.
    case notRunning = "not-running"
    /// A window is visible, none has the focus; passed through on every way to and from `active`.
    case inactive
    /// One of its windows has the focus, in a session that is in front and unlocked.
    case active
    /// No window is visible; code still runs.
    case background
    /// Stopped or frozen: in memory, executes no code, is sent nothing.
    case suspended
}

/// One step between two states that the contract allows.
public struct Edge: Hashable, Sendable, CustomStringConvertible {
    public let from: LifeCycleState
    public let to: LifeCycleState

    /// Takes the two ends as they are, whether the contract has such an edge or not.
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
    /// A window reporter told of focus.
    case focus
    /// A window reporter told of windows: shown, hidden, minimized, gone.
    case windows
    /// The login session came to the front, left it, was locked or unlocked.
    case session
    /// Somebody else stopped or continued the process.
    case signal
    /// A client asked, by `Suspend`, `Resume` or `Terminate`.
    case request
    /// The daemon's own policy: the background grace has passed.
    case policy
    /// Somebody needs it: a suspension that nobody asked for ends.
    case demand
    /// Memory is short.
    case pressure
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
    /// The kernel's killer chose it when there was no memory left.
    case outOfMemory = "out-of-memory"
    /// Ended by appstated, because memory was short.
    case reclaimed
    case terminated
    case forceQuit = "force-quit"
    case unresponsive
    case rebooted
    case unknown
    /// The application was given up with `Unregister`; its process lives on.
    case unregistered
}

/// Who wants an application suspended: the first part of an entry of `SuspendHolds`.
public enum HoldReason: String, Hashable, Sendable, CaseIterable {
    case policy
    case request
    case signal
    /// Asked for, until it gets the focus.
    case toggle

    /// The daemon's own decision, which gives way to focus and to whatever speaks against it (§ 2).
    public var isDecision: Bool { self == .policy }
}

/// Whether the daemon may suspend an application by itself.
public enum SuspensionPolicy: String, Hashable, Sendable, CaseIterable {
    /// Suspended after the background grace.
    case automatic
    /// Suspended only on request, or under pressure.
    case manual
    /// Neither policy nor pressure may suspend it.
    case never
}

/// In which state the daemon may suspend an application by itself.
public enum SuspendWhen: String, Hashable, Sendable, CaseIterable {
    /// None of its windows can be seen.
    case background
    /// None of them has the focus, though some may be seen.
    case inactive
}

/// How an application begins.
public enum LaunchMode: String, Hashable, Sendable, CaseIterable {
    /// Counts as visible until a reporter has told of it.
    case foreground
    /// Counts as having no window until a reporter has told of one.
    case background
}

/// How stops made by somebody else are found just now: the property `StopDetection`.
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

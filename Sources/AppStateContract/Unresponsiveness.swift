/// What an application has promised to answer, and has not in time.
public enum UnresponsiveEvent: String, Hashable, Sendable, CaseIterable {
    /// `FinishLaunching`, within `LaunchTimeoutSec`.
    case launch
    /// `Acknowledge` of `DidEnterBackground`, before its deadline.
    case background
    /// Its end, before the deadline of `WillTerminate`.
    case termination
}

/// What becomes of an application that does not answer: `UnresponsiveAction=`.
public enum UnresponsiveAction: String, Hashable, Sendable, CaseIterable {
    /// Subscribers are told.
    case report
    /// And it is killed.
    case terminate
}

/// What becomes of a launch that takes longer than `LaunchTimeoutSec`: `LaunchTimeoutAction=`.
public enum LaunchTimeoutAction: String, Hashable, Sendable, CaseIterable {
    /// It counts as launched.
    case `continue`
    /// It is killed.
    case terminate
}

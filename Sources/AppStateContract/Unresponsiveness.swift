/// A response that an application did not give in time.
public enum UnresponsiveEvent: String, Hashable, Sendable, CaseIterable {
    /// `FinishLaunching`, within `LaunchTimeoutSec`.
    case launch
    /// `Acknowledge` of `DidEnterBackground`, before its deadline.
    case background
    /// Its end, before the deadline of `WillTerminate`.
    case termination
    /// `Ping`, within `UnresponsiveSec`: its main loop does not run.
    case mainLoop = "main loop"
}

/// What the daemon does with an unresponsive application: `UnresponsiveAction=`.
public enum UnresponsiveAction: String, Hashable, Sendable, CaseIterable {
    /// Subscribers are notified.
    case report
    /// Subscribers are notified, and the application is killed.
    case terminate
}

/// What the daemon does with a launch that takes longer than `LaunchTimeoutSec`: `LaunchTimeoutAction=`.
public enum LaunchTimeoutAction: String, Hashable, Sendable, CaseIterable {
    /// It counts as launched.
    case `continue`
    /// It is killed.
    case terminate
}

/// The states of an application, spelled as in the D-Bus API.
public enum ApplicationState: String, Hashable, Sendable, CaseIterable {
    /// Launching has not finished.
    case notRunning = "not-running"
    /// A window is visible, but none has the focus. Every path to and from `active` passes through this state.
    case inactive
    /// One of the application's windows has the focus. This is also the state while appstated is not running.
    case active
    /// No window is visible; the application still runs for a while.
    case background
}

/// How short memory is.
public enum MemoryWarning: String, Hashable, Sendable, CaseIterable {
    /// Free data that can be recreated.
    case warning
    /// From now on, appstated ends applications until memory is no longer short.
    case critical
}

/// What changed the time.
public enum SignificantTimeChange: String, Hashable, Sendable, CaseIterable {
    /// The machine has slept.
    case resume
    /// The clock was set, by a second or more.
    case clockSet = "clock-set"
    /// The local time zone has changed.
    case timeZone = "time-zone"
    /// Daylight saving time has begun or ended.
    case daylightSaving = "daylight-saving"
    /// A new day has begun in the local time zone.
    case midnight
}

/// Whether appstated may suspend the application by itself.
public enum SuspensionPolicy: String, Hashable, Sendable, CaseIterable {
    /// Suspended after the background grace period.
    case automatic
    /// Suspended only on request.
    case manual
    /// Never suspended by policy.
    case never
}

/// How an application starts.
public enum LaunchMode: String, Hashable, Sendable, CaseIterable {
    /// Counts as visible until a reporter reports its windows.
    case foreground
    /// Counts as having no window until a reporter reports one.
    case background
}

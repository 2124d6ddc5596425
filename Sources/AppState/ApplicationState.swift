/// Where an application is in its life. Spelled as the D-Bus API spells it.
public enum ApplicationState: String, Hashable, Sendable, CaseIterable {
    /// Launching has not finished.
    case notRunning = "not-running"
    /// A window is visible, none has the focus; passed through on every way to and from `active`.
    case inactive
    /// One of the application's windows has the focus. Also where nobody tells: no appstated runs.
    case active
    /// No window is visible; code still runs, for a while.
    case background
}

/// How short memory is.
public enum MemoryWarning: String, Hashable, Sendable, CaseIterable {
    /// Give back what can be had again.
    case warning
    /// Applications are ended from now on, until memory is no longer short.
    case critical
}

/// What has changed the time.
public enum SignificantTimeChange: String, Hashable, Sendable, CaseIterable {
    /// The machine has slept.
    case resume
    /// Somebody has set the clock, by a second or more.
    case clockSet = "clock-set"
    /// The local time zone is another.
    case timeZone = "time-zone"
    /// Daylight saving time has begun or ended.
    case daylightSaving = "daylight-saving"
    /// A day has begun in the local time zone.
    case midnight
}

/// Whether appstated may suspend the application by itself.
public enum SuspensionPolicy: String, Hashable, Sendable, CaseIterable {
    /// Suspended after the background grace.
    case automatic
    /// Suspended only on request, or when memory is short.
    case manual
    /// Neither policy nor memory pressure may suspend it.
    case never
}

/// How an application begins.
public enum LaunchMode: String, Hashable, Sendable, CaseIterable {
    /// Counts as visible until somebody has told of its windows.
    case foreground
    /// Counts as having no window until somebody has told of one.
    case background
}

/// The keys of the options of `Register`.
public enum RegisterOption: String, Sendable, CaseIterable {
    case delegate
    case launchMode = "launch-mode"
    case suspension
    case reclaimable
    case backgroundModes = "background-modes"
    case launchOptions = "launch-options"
    case adopted
}

/// The launch options that the daemon itself sets: how the previous run ended. Options with these names that
/// a client passes are dropped.
public enum LaunchOption: String, Sendable, CaseIterable {
    case previousState = "previous-state"
    case exitReason = "exit-reason"
    case exitStatus = "exit-status"
    case firstLaunch = "first-launch"
    case restorable
}

/// The keys of the details of `ApplicationRemoved` and `ApplicationReclaimed`.
public enum EndDetail: String, Sendable, CaseIterable {
    case previousState = "previous-state"
    case exitStatus = "exit-status"
    case session
    case unsavedChanges = "unsaved-changes"
    case relaunch
}

/// The keys of the options of `Launch`. All but the last are also launch options of the application.
public enum LaunchKey: String, Sendable, CaseIterable {
    case urls
    case launchMode = "launch-mode"
    case reason
    case payload
    /// The scene that is meant: `newScene`, or the persistent identifier of one.
    case scene
    /// Identifies the user's action to the desktop: an XDG activation token or a startup notification id.
    case activationToken = "activation-token"

    /// The value of `scene` that asks for another one.
    public static let newScene = "new"
}

/// The keys that the daemon adds when it forwards something from another application.
public enum SenderKey {
    /// The id of the sending application, as the daemon knows it; absent if the sender is not an application.
    public static let application = "source-app-id"
    /// The name of the scheduled launch that is due.
    public static let scheduledLaunch = "scheduled-launch"
}

/// Why an application is launched.
public enum LaunchReason: String, Sendable, CaseIterable {
    case user, url, activity, message, transfer, restore
    /// A scheduled launch is due (`LaunchTrigger`).
    case time, network, power
}

/// What a scheduled launch waits for: the type in `ScheduleLaunch`.
public enum LaunchTrigger: String, Sendable, CaseIterable {
    /// A moment.
    case time
    /// The network is there.
    case network
    /// The machine is on mains power.
    case power

    /// Why the application is launched then.
    public var reason: LaunchReason {
        switch self {
        case .time: .time
        case .network: .network
        case .power: .power
        }
    }
}

/// The keys of the options of `ScheduleLaunch`.
public enum ScheduleKey: String, Sendable, CaseIterable {
    case name
    case at
    case after
}

/// The keys of the options of `BeginContinuedTask`.
public enum ContinuedTaskKey: String, Sendable, CaseIterable {
    case title
    case total
}

/// The keys of a rule of `Configure`.
public enum RuleKey: String, Sendable, CaseIterable {
    case rule
    case suspension
    case reclaimable
    case backgroundGrace = "background-grace"
    case keepWhile = "keep-while"
    case drainEvery = "drain-every"
    case drainFor = "drain-for"
    case suspendWhen = "suspend-when"
    case backgroundCPUQuota = "background-cpu-quota"
    case unsavedMark = "unsaved-mark"
    case relaunchReclaimed = "relaunch-reclaimed"
}

/// The keys of a window in the answer of `ListWindows`.
public enum ShownWindowKey: String, Sendable, CaseIterable {
    case window
    case state
    case title
    case session
    case minimized
}

/// The key of the option of `ListHistory`.
public enum HistoryKey {
    public static let user = "user"
}

/// The keys of a window's state in `UpdateWindow` and `ReplaceWindows`.
public enum WindowKeyName: String, Sendable, CaseIterable {
    case focused
    case visible
    case minimized
    case title
    case appID = "app-id"
    case unsavedChanges = "unsaved-changes"
}

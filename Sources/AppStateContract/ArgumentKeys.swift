/// The keys that `Register` takes in its options.
public enum RegisterOption: String, Sendable, CaseIterable {
    case delegate
    case launchMode = "launch-mode"
    case suspension
    case reclaimable
    case backgroundModes = "background-modes"
    case launchOptions = "launch-options"
    case adopted
}

/// The launch options that the daemon itself gives: what became of the run before. A client's own of these names are not
/// kept.
public enum LaunchOption: String, Sendable, CaseIterable {
    case previousState = "previous-state"
    case exitReason = "exit-reason"
    case exitStatus = "exit-status"
    case firstLaunch = "first-launch"
    case restorable
}

/// The keys that `Launch` takes in its options. All but the last are launch options of the application, too.
public enum LaunchKey: String, Sendable, CaseIterable {
    case urls
    case launchMode = "launch-mode"
    case reason
    case payload
    /// What the desktop knows the user's wish by: an XDG activation token or a startup notification id.
    case activationToken = "activation-token"
}

/// What else the daemon says to whom it hands on what somebody sent.
public enum SenderKey {
    /// The id of the application that has sent it: the daemon's word, and not there where the sender is none.
    public static let application = "source-app-id"
}

/// Why an application is launched.
public enum LaunchReason: String, Sendable, CaseIterable {
    case user, url, activity, message, transfer, time, restore
}

/// The keys that `Configure` takes in a rule.
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

/// The keys that `UpdateWindow` and `ReplaceWindows` take in a window's state.
public enum WindowKeyName: String, Sendable, CaseIterable {
    case focused
    case visible
    case minimized
    case title
    case appID = "app-id"
    case unsavedChanges = "unsaved-changes"
}

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

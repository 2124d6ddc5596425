/// The methods of one interface, with their names on the bus.
public protocol MethodName: RawRepresentable<String>, Sendable {
    /// The interface to which they belong.
    static var interface: String { get }
}

/// The methods of `org.appstate1.Manager`.
public enum ManagerMethod: String, MethodName {
    case register = "Register"
    case registerProcess = "RegisterProcess"
    case launch = "Launch"
    case listApplications = "ListApplications"
    case getApplicationByPID = "GetApplicationByPID"
    case getApplicationByID = "GetApplicationByID"
    case subscribe = "Subscribe"
    case unsubscribe = "Unsubscribe"
    case reloadConfig = "ReloadConfig"
    case toggleFocused = "ToggleFocused"
    case getHistory = "GetHistory"
    case listHistory = "ListHistory"
    case forgetApplication = "ForgetApplication"
    case registerLauncher = "RegisterLauncher"
    case registerPresenter = "RegisterPresenter"
    case listScheduledLaunches = "ListScheduledLaunches"
    case cancelLaunch = "CancelLaunch"

    public static var interface: String { BusNames.manager }
}

/// The properties of `org.appstate1.Manager`.
public enum ManagerProperty: String, Sendable {
    case version = "Version"
    case memoryPressure = "MemoryPressure"
    case focusedApplication = "FocusedApplication"
    case frontActivity = "FrontActivity"
    case stopDetection = "StopDetection"
    case mode = "Mode"
    case refusedLines = "RefusedLines"
}

/// The signals of `org.appstate1.Manager`.
public enum ManagerSignal: String, Sendable, CaseIterable {
    case applicationAdded = "ApplicationAdded"
    case applicationRemoved = "ApplicationRemoved"
    case stateChanged = "StateChanged"
    case memoryPressureChanged = "MemoryPressureChanged"
    case applicationReclaimed = "ApplicationReclaimed"
    case resync = "Resync"

    /// The names and types of its arguments.
    public var arguments: [(name: String, type: String)] {
        let subject: [(name: String, type: String)] = [("application", "o"), ("app_id", "s"), ("pid", "u")]
        return switch self {
        case .applicationAdded: subject
        case .applicationRemoved: subject + [("exit_reason", "s"), ("details", "a{sv}")]
        case .stateChanged: subject + [("from", "s"), ("to", "s"), ("reason", "s")]
        case .memoryPressureChanged: [("level", "s")]
        case .applicationReclaimed: subject + [("bytes", "t"), ("usec", "t"), ("details", "a{sv}")]
        case .resync: []
        }
    }
}

/// The methods of `org.appstate1.Reporter`.
public enum ReporterMethod: String, MethodName {
    case setFocus = "SetFocus"
    case setMinimized = "SetMinimized"
    case updateWindow = "UpdateWindow"
    case removeWindow = "RemoveWindow"
    case replaceWindows = "ReplaceWindows"
    case setSession = "SetSession"
    case replaceObjections = "ReplaceObjections"
    case reportDemand = "ReportDemand"

    public static var interface: String { BusNames.reporter }
}

/// The methods of `org.appstate1.Application`.
public enum ApplicationMethod: String, MethodName {
    case finishLaunching = "FinishLaunching"
    case becomeDelegate = "BecomeDelegate"
    case acknowledge = "Acknowledge"
    case answerPings = "AnswerPings"
    case beginBackgroundTask = "BeginBackgroundTask"
    case beginContinuedTask = "BeginContinuedTask"
    case setTaskProgress = "SetTaskProgress"
    case endBackgroundTask = "EndBackgroundTask"
    case cancelTask = "CancelTask"
    case scheduleLaunch = "ScheduleLaunch"
    case cancelLaunch = "CancelLaunch"
    case finishTransfer = "FinishTransfer"
    case backgroundTimeRemaining = "BackgroundTimeRemaining"
    case setUnsavedChanges = "SetUnsavedChanges"
    case configure = "Configure"
    case suspend = "Suspend"
    case resume = "Resume"
    case toggle = "Toggle"
    case listObjections = "ListObjections"
    case terminate = "Terminate"
    case unregister = "Unregister"
    case explain = "Explain"
    case saveState = "SaveState"
    case loadState = "LoadState"
    case saveStateFile = "SaveStateFile"
    case loadStateFile = "LoadStateFile"
    case open = "Open"
    case sendMessage = "SendMessage"
    case setUserActivity = "SetUserActivity"
    case continueActivity = "ContinueActivity"
    case activate = "Activate"
    case listWindows = "ListWindows"
    case inhibit = "Inhibit"

    public static var interface: String { BusNames.application }
}

/// The methods through which the session agent starts applications for the daemon: `org.appstate1.Launcher`.
public enum LauncherMethod: String, MethodName {
    case start = "Start"
    case proceed = "Proceed"
    case cancel = "Cancel"
    case open = "Open"
    case getExit = "GetExit"
    case makeScope = "MakeScope"

    public static var interface: String { BusNames.launcher }
}

/// The methods through which the session agent, or a compositor, shows applications for the daemon:
/// `org.appstate1.Presenter`.
public enum PresenterMethod: String, MethodName {
    case present = "Present"
    case leave = "Leave"

    public static var interface: String { BusNames.presenter }
}

/// The properties of `org.appstate1.Application`.
public enum ApplicationProperty: String, Sendable {
    case id = "ID"
    case pid = "PID"
    case uid = "UID"
    case state = "State"
    case stateTimestamp = "StateTimestamp"
    case stateTimestampMonotonic = "StateTimestampMonotonic"
    case registeredTimestamp = "RegisteredTimestamp"
    case registeredTimestampMonotonic = "RegisteredTimestampMonotonic"
    case launching = "Launching"
    case terminating = "Terminating"
    case adopted = "Adopted"
    case focused = "Focused"
    case visible = "Visible"
    case minimized = "Minimized"
    case suspension = "Suspension"
    case reclaimable = "Reclaimable"
    case unsavedChanges = "UnsavedChanges"
    case reclaimRank = "ReclaimRank"
    case unresponsive = "Unresponsive"
    case protectedDataAvailable = "ProtectedDataAvailable"
    case backgroundModes = "BackgroundModes"
    case suspendHolds = "SuspendHolds"
    case suspensionDeadline = "SuspensionDeadline"
    case objections = "Objections"
    case inhibitors = "Inhibitors"
    case backgroundTasks = "BackgroundTasks"
    case continuedTasks = "ContinuedTasks"
    case launchOptions = "LaunchOptions"
    case userActivity = "UserActivity"
    case session = "Session"
    case unit = "Unit"
    case memoryUsage = "MemoryUsage"
}

/// The signals of `org.appstate1.Application`.
public enum ApplicationSignal: String, Sendable, CaseIterable {
    case willFinishLaunching = "WillFinishLaunching"
    case didFinishLaunching = "DidFinishLaunching"
    case didBecomeActive = "DidBecomeActive"
    case willResignActive = "WillResignActive"
    case didEnterBackground = "DidEnterBackground"
    case willEnterForeground = "WillEnterForeground"
    case willTerminate = "WillTerminate"
    case didReceiveMemoryWarning = "DidReceiveMemoryWarning"
    case significantTimeChange = "SignificantTimeChange"
    case protectedDataWillBecomeUnavailable = "ProtectedDataWillBecomeUnavailable"
    case protectedDataDidBecomeAvailable = "ProtectedDataDidBecomeAvailable"
    case openURLs = "OpenURLs"
    case reopen = "Reopen"
    case continueUserActivity = "ContinueUserActivity"
    case messageReceived = "MessageReceived"
    case backgroundTransferFinished = "BackgroundTransferFinished"
    case backgroundTaskWillExpire = "BackgroundTaskWillExpire"
    case scheduledLaunchDue = "ScheduledLaunchDue"
    case ping = "Ping"
    case didBecomeUnresponsive = "DidBecomeUnresponsive"
    case windowsChanged = "WindowsChanged"
    case stateChanged = "StateChanged"

    /// The names and types of its arguments.
    public var arguments: [(name: String, type: String)] {
        switch self {
        case .willFinishLaunching, .reopen: [("options", "a{sv}")]
        case .didFinishLaunching, .didBecomeActive, .willResignActive, .willEnterForeground,
            .protectedDataDidBecomeAvailable, .windowsChanged:
            []
        case .didEnterBackground, .willTerminate, .protectedDataWillBecomeUnavailable, .ping:
            [("serial", "t"), ("deadline", "t")]
        case .didReceiveMemoryWarning: [("level", "s")]
        case .significantTimeChange: [("cause", "s")]
        case .openURLs: [("urls", "as"), ("options", "a{sv}")]
        case .continueUserActivity: [("type", "s"), ("info", "a{sv}")]
        case .messageReceived: [("sender", "s"), ("name", "s"), ("payload", "a{sv}")]
        case .backgroundTransferFinished: [("id", "s"), ("result", "a{sv}")]
        case .backgroundTaskWillExpire: [("task", "t"), ("deadline", "t")]
        case .scheduledLaunchDue: [("name", "s"), ("task", "t")]
        case .didBecomeUnresponsive: [("event", "s")]
        case .stateChanged: [("from", "s"), ("to", "s"), ("reason", "s")]
        }
    }
}

/// The members that GNOME Shell's extension exports on the session bus: `org.appstate1.Shell`.
public enum ShellMember: String, Sendable {
    case listWindows = "ListWindows"
    case minimize = "Minimize"
    case activate = "Activate"
    case changed = "Changed"
}

/// The methods that the session agent exports for its script in KWin: `org.appstate1.Windows`.
public enum WindowsMember: String, Sendable {
    case replaceWindows = "ReplaceWindows"
}

internal import AppStateContract

/// Why the application is launched, and how the previous run ended.
public struct LaunchOptions: Hashable, Sendable {
    /// All options, by their names in the D-Bus API.
    public let values: [String: Value]

    /// Creates launch options from their names in the D-Bus API.
    public init(_ values: [String: Value] = [:]) {
        self.values = values
    }

    /// The URLs to open. `application(_:open:options:)` is also called with them, once launching has
    /// finished.
    public var urls: [String] { values["urls"]?.stringsValue ?? [] }
    /// Why it is launched, such as ``Reason/user``. nil: no reason was given.
    public var reason: String? { values["reason"]?.stringValue }
    /// How it was launched. With `background`, it was not started for a user, and should not show a window on
    /// its own initiative.
    public var launchMode: LaunchMode {
        values["launch-mode"]?.stringValue.flatMap(LaunchMode.init) ?? .foreground
    }
    /// The data that came with the launch.
    public var payload: [String: Value] { values["payload"]?.dictionaryValue ?? [:] }
    /// The scene that is asked for: `new`, or a persistent identifier. The library connects it.
    public var scene: String? { values[LaunchKey.scene.rawValue]?.stringValue }
    /// The application that requested the launch.
    public var sourceApplication: String? { values["source-app-id"]?.stringValue }

    /// The scheduled launch that was due. nil: it was launched for something else.
    public var scheduledLaunch: ScheduledLaunch? {
        values[SenderKey.scheduledLaunch]?.stringValue.map { ScheduledLaunch(name: $0) }
    }

    /// Whether no earlier run of this application is known.
    public var isFirstLaunch: Bool { values[LaunchOption.firstLaunch.rawValue]?.boolValue ?? false }
    /// How the previous run ended, such as ``ExitReason/reclaimed``. nil: there was none.
    public var exitReason: String? { values[LaunchOption.exitReason.rawValue]?.stringValue }
    /// The exit status of the previous run, or the signal that ended it, if known.
    public var exitStatus: Int? { values[LaunchOption.exitStatus.rawValue]?.intValue }
    /// The state in which the previous run ended, such as ``PreviousState/suspended``. nil: it is not known.
    public var previousState: String? { values[LaunchOption.previousState.rawValue]?.stringValue }
    /// Whether there is saved state. It has been restored when the delegate's `didFinishLaunching` is called.
    public var isRestorable: Bool { values[LaunchOption.restorable.rawValue]?.boolValue ?? false }
}

extension LaunchOptions {
    /// Why an application is launched. appstated may pass on other reasons, too.
    public enum Reason {
        /// A user wants to see it.
        public static var user: String { LaunchReason.user.rawValue }
        /// It is to open URLs.
        public static var url: String { LaunchReason.url.rawValue }
        /// The user continues an activity in it.
        public static var activity: String { LaunchReason.activity.rawValue }
        /// Another application has sent it a message.
        public static var message: String { LaunchReason.message.rawValue }
        /// A transfer in the background has finished.
        public static var transfer: String { LaunchReason.transfer.rawValue }
        /// It is time for a launch that it has scheduled.
        public static var time: String { LaunchReason.time.rawValue }
        /// It has scheduled a launch for when the network is there.
        public static var network: String { LaunchReason.network.rawValue }
        /// It has scheduled a launch for when the machine is on mains power.
        public static var power: String { LaunchReason.power.rawValue }
        /// It was ended because memory was short, and memory is no longer short.
        public static var restore: String { LaunchReason.restore.rawValue }
    }

    /// How a run of an application ended.
    public enum ExitReason {
        /// The process has exited.
        public static var exited: String { End.exited.rawValue }
        /// A signal that means a defect has ended it.
        public static var crashed: String { End.crashed.rawValue }
        /// Any other signal has ended it.
        public static var killed: String { End.killed.rawValue }
        /// The kernel has ended it because no memory was left.
        public static var outOfMemory: String { End.outOfMemory.rawValue }
        /// appstated has ended it because memory was short.
        public static var reclaimed: String { End.reclaimed.rawValue }
        /// A client of appstated has asked for its end.
        public static var terminated: String { End.terminated.rawValue }
        /// A client of appstated has ended it by force. Its saved state was dropped.
        public static var forceQuit: String { End.forceQuit.rawValue }
        /// It did not respond, and the administrator wants such applications to be ended.
        public static var unresponsive: String { End.unresponsive.rawValue }
        /// It ran when the machine went down.
        public static var rebooted: String { End.rebooted.rawValue }
        /// It is not known how it ended.
        public static var unknown: String { End.unknown.rawValue }
        /// It was unregistered, and its process kept running.
        public static var unregistered: String { End.unregistered.rawValue }

        private typealias End = AppStateContract.ExitReason
    }

    /// The state in which a run of an application ended.
    public enum PreviousState {
        /// Its launch was not over.
        public static var notRunning: String { LifeCycleState.notRunning.rawValue }
        /// A window was visible, none had the focus.
        public static var inactive: String { LifeCycleState.inactive.rawValue }
        /// One of its windows had the focus.
        public static var active: String { LifeCycleState.active.rawValue }
        /// No window was visible.
        public static var background: String { LifeCycleState.background.rawValue }
        /// It was in memory, and executed no code.
        public static var suspended: String { LifeCycleState.suspended.rawValue }
    }
}

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
    /// Why it is launched: `user`, `url`, `activity`, `message`, `transfer`, `time` or `restore`. nil: no
    /// reason was given.
    public var reason: String? { values["reason"]?.stringValue }
    /// How it was launched. With `background`, it was not started for a user, and should not show a window on
    /// its own initiative.
    public var launchMode: LaunchMode {
        values["launch-mode"]?.stringValue.flatMap(LaunchMode.init) ?? .foreground
    }
    /// The data that came with the launch.
    public var payload: [String: Value] { values["payload"]?.dictionaryValue ?? [:] }
    /// The application that requested the launch.
    public var sourceApplication: String? { values["source-app-id"]?.stringValue }

    /// Whether no earlier run of this application is known.
    public var isFirstLaunch: Bool { values[LaunchOption.firstLaunch.rawValue]?.boolValue ?? false }
    /// How the previous run ended: `exited`, `crashed`, `killed`, `out-of-memory`, `reclaimed`, `terminated`,
    /// `force-quit`, `unresponsive`, `rebooted` or `unknown`. nil: there was none.
    public var exitReason: String? { values[LaunchOption.exitReason.rawValue]?.stringValue }
    /// The exit status of the previous run, or the signal that ended it, if known.
    public var exitStatus: Int? { values[LaunchOption.exitStatus.rawValue]?.intValue }
    /// The state in which the previous run ended. It can be `suspended`.
    public var previousState: String? { values[LaunchOption.previousState.rawValue]?.stringValue }
    /// Whether there is saved state. It has been restored when the delegate's `didFinishLaunching` is called.
    public var isRestorable: Bool { values[LaunchOption.restorable.rawValue]?.boolValue ?? false }
}

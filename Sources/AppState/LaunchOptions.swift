internal import AppStateContract

/// Why the application is launched, and what became of the run before.
public struct LaunchOptions: Hashable, Sendable {
    /// All of them, by the names of the D-Bus API.
    public let values: [String: Value]

    /// Takes options by the names of the D-Bus API.
    public init(_ values: [String: Value] = [:]) {
        self.values = values
    }

    /// What to open; `application(_:open:options:)` is called with it, too, once launching has finished.
    public var urls: [String] { values["urls"]?.stringsValue ?? [] }
    /// What it is launched for: `user`, `url`, `activity`, `message`, `transfer`, `time` or `restore`. nil: nobody said.
    public var reason: String? { values["reason"]?.stringValue }
    /// In the background, the application was started without the user, and shows no window of its own accord.
    public var launchMode: LaunchMode {
        values["launch-mode"]?.stringValue.flatMap(LaunchMode.init) ?? .foreground
    }
    /// What came with the launch.
    public var payload: [String: Value] { values["payload"]?.dictionaryValue ?? [:] }
    /// The application that asked for the launch.
    public var sourceApplication: String? { values["source-app-id"]?.stringValue }

    /// No earlier run of this application is known.
    public var isFirstLaunch: Bool { values[LaunchOption.firstLaunch.rawValue]?.boolValue ?? false }
    /// How the run before ended: `exited`, `crashed`, `killed`, `out-of-memory`, `reclaimed`, `terminated`, `force-quit`,
    /// `unresponsive`, `rebooted` or `unknown`. nil: there was none.
    public var exitReason: String? { values[LaunchOption.exitReason.rawValue]?.stringValue }
    /// The exit status of the run before, or its signal, where it is known.
    public var exitStatus: Int? { values[LaunchOption.exitStatus.rawValue]?.intValue }
    /// The state in which the run before ended. `suspended` is one of them.
    public var previousState: String? { values[LaunchOption.previousState.rawValue]?.stringValue }
    /// There is saved state; it has been restored when the delegate's `didFinishLaunching` is called.
    public var isRestorable: Bool { values[LaunchOption.restorable.rawValue]?.boolValue ?? false }
}

public import AppStateContract

/// The settings from the configuration. Spans are microseconds; nil is `infinity`.
public struct Settings: Equatable, Sendable {
    /// `[Daemon] Mode=`
    public enum Mode: String, Sendable, CaseIterable {
        case enforce
        /// Everything is decided and announced, but policy does not suspend applications, and pressure does
        /// not end them.
        case observe
    }

    public var mode: Mode = .enforce
    /// The time between `DidEnterBackground` and suspension. iOS gives about 5 s.
    public var backgroundGrace: Microseconds? = 5_000_000
    /// The limit of one background task. iOS gives about 30 s.
    public var backgroundTaskMax: Microseconds? = 30_000_000
    /// How long before its limit a background task is warned. OpenHarmony: 6 s.
    public var backgroundTaskWarn: Microseconds = 6_000_000
    /// The time between `WillTerminate` and SIGKILL. iOS gives about 5 s.
    public var terminateGrace: Microseconds? = 5_000_000
    /// How long until `FinishLaunching` must have been called. iOS watchdog: about 20 s.
    public var launchTimeout: Microseconds? = 20_000_000
    /// How long an application in the foreground may take to answer a ping; nil or 0: it is not pinged. Desktops ask
    /// about a window after 5 to 20 s.
    public var unresponsive: Microseconds? = 10_000_000
    /// What happens to an application that takes longer to launch.
    public var launchTimeoutAction = LaunchTimeoutAction.continue
    /// The time between two drains of an application that we hold suspended; nil or 0: none (§ 5). Chromium lets
    /// background pages run once a minute.
    public var drainEvery: Microseconds? = 60_000_000
    /// How long a drain lasts; 0: none.
    public var drainFor: Microseconds = 1_000_000
    /// Bytes per second over TCP from which an application counts as transferring something; nil: none
    /// does. An open chat or mailbox stays below it, a download does not.
    public var networkRate: UInt64? = 16_384
    /// Bytes per second written to files, over five seconds, from which an application counts as working; nil: none
    /// does. A slow copy and a recording are above it.
    public var diskRate: UInt64? = 64 << 10
    public var limits = Limits()
    public var pressure = PressureSettings()
    /// `[Application ID]`, by id.
    public var applications: [String: Override] = [:]

    /// `[Limits]` (dbus-api, "Limits").
    public struct Limits: Equatable, Sendable {
        public var applicationsPerUser = 1_024
        public var subscribersPerUser = 64
        public var windowsPerUser = 2_048
        /// Those that run, and the scheduled launches.
        public var backgroundTasksPerUser = 256
        /// Bytes, where no other limit applies.
        public var stringBytes = 1_024
        /// Bytes that all applications of a user together may have saved (`SaveState`).
        public var savedStatePerUser: UInt64 = 64 << 20

        public init() {}
    }

    /// Settings of the user or the administrator for one application; nil leaves it to the application.
    public struct Override: Equatable, Sendable {
        public var suspension: SuspensionPolicy?
        public var reclaimable: Bool?
        /// Background modes that the configuration grants; a mode that is not granted is no objection.
        public var backgroundModes: Set<String> = []
        /// What happens when it does not respond.
        public var unresponsiveAction: UnresponsiveAction?

        public init() {}
    }

    public init() {}
}

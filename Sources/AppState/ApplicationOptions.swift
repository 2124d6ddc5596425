internal import AppStateBus
internal import AppStateContract

/// How appstated treats the application: the options of its registration.
public struct ApplicationOptions: Hashable, Sendable {
    /// Whether it may be suspended in the background.
    public var suspension: SuspensionPolicy
    /// Whether it may be ended when memory is short, while it is suspended or in the background.
    public var isReclaimable: Bool
    /// Reasons to keep running in the background, such as `audio`. The administrator's configuration grants them.
    public var backgroundModes: [String]
    /// For an application that was not started by appstated's `Launch`: whether it starts with a window; nil: in the
    /// foreground. A launched application starts as its launch specifies.
    public var launchMode: LaunchMode?
    package var limits = Limits()

    /// How long the application waits, in microseconds. Tests wait longer, because a busy machine is not a
    /// failure.
    package struct Limits: Hashable, Sendable {
        /// If its registration is not answered for this long, it continues alone. A restart of the daemon
        /// takes less time.
        package var registration: UInt64 = 3_000_000
        /// How long it waits for the reply to any other call: a save to a slow disk may take a while.
        package var call: UInt64 = 10_000_000
        /// The longest time that a termination from within may take.
        package var end: UInt64 = 5_000_000
    }

    /// - Parameters:
    ///   - suspension: whether it may be suspended in the background.
    ///   - isReclaimable: whether it may be ended when memory is short.
    ///   - backgroundModes: reasons to keep running in the background.
    ///   - launchMode: whether it starts with a window.
    public init(
        suspension: SuspensionPolicy = .automatic, isReclaimable: Bool = true, backgroundModes: [String] = [],
        launchMode: LaunchMode? = nil
    ) {
        self.suspension = suspension
        self.isReclaimable = isReclaimable
        self.backgroundModes = backgroundModes
        self.launchMode = launchMode
    }

    /// The options for `Register`. Values that are the default there are left out.
    var entries: [(String, Variant)] {
        var entries: [(RegisterOption, Variant)] = []
        if suspension != .automatic { entries.append((.suspension, .string(suspension.rawValue))) }
        if !isReclaimable { entries.append((.reclaimable, .bool(false))) }
        if !backgroundModes.isEmpty { entries.append((.backgroundModes, .strings(backgroundModes))) }
        if let launchMode { entries.append((.launchMode, .string(launchMode.rawValue))) }
        return entries.map { ($0.0.rawValue, $0.1) }
    }
}

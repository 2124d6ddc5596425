/// Why nobody has answered a call to the daemon, by the error of the bus, or of the service manager that starts its
/// services.
public enum Absence: Sendable {
    /// The daemon does not run, and the bus does not know how to start it.
    case notStartable
    /// It does not run, and the bus could not start it.
    case notStarted

    /// - Parameter error: the name of a D-Bus error; nil: the error means something else.
    public init?(error: String) {
        switch error {
        case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
            "org.freedesktop.systemd1.NoSuchUnit":
            self = .notStartable
        case _ where Self.startErrors.contains(where: { error.hasPrefix($0) }): self = .notStarted
        default: return nil
        }
    }

    /// What the name of the error begins with if a start has failed. `TimedOut` is a start that takes too long; a call
    /// that is not answered in time ends with another error.
    private static let startErrors = [
        "org.freedesktop.DBus.Error.Spawn.", "org.freedesktop.DBus.Error.TimedOut",
        "org.freedesktop.systemd1.",
    ]
}

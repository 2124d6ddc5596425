/// The error names of the D-Bus API, and the standard ones that it uses.
public enum ErrorName: String, Sendable, CaseIterable {
    case noSuchApplication = "org.appstate1.Error.NoSuchApplication"
    case noSuchProcess = "org.appstate1.Error.NoSuchProcess"
    case alreadyRegistered = "org.appstate1.Error.AlreadyRegistered"
    case notDelegate = "org.appstate1.Error.NotDelegate"
    case noSuchTask = "org.appstate1.Error.NoSuchTask"
    case notSuspendable = "org.appstate1.Error.NotSuspendable"
    case notInForeground = "org.appstate1.Error.NotInForeground"
    case noSessionAgent = "org.appstate1.Error.NoSessionAgent"
    case tooLarge = "org.appstate1.Error.TooLarge"
    case accessDenied = "org.freedesktop.DBus.Error.AccessDenied"
    case invalidArgs = "org.freedesktop.DBus.Error.InvalidArgs"
    case limitsExceeded = "org.freedesktop.DBus.Error.LimitsExceeded"
    case notSupported = "org.freedesktop.DBus.Error.NotSupported"
    case failed = "org.freedesktop.DBus.Error.Failed"
}

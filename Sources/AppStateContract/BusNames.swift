/// The well-known name, paths and interfaces of the D-Bus API, version 1.
public enum BusNames {
    /// The name that the daemon owns on the system bus.
    public static let service = "org.appstate1"
    /// The object with the Manager and Reporter interfaces.
    public static let root = "/org/appstate1"
    /// The parent of all application objects.
    public static let applications = "/org/appstate1/application"
    public static let manager = "org.appstate1.Manager"
    public static let reporter = "org.appstate1.Reporter"
    public static let application = "org.appstate1.Application"
    /// The interface that the session agent exports for the daemon, on the system bus.
    public static let agent = "org.appstate1.Agent"
    /// Its object.
    public static let agentPath = "/org/appstate1/Agent"
    public static let properties = "org.freedesktop.DBus.Properties"
    public static let objectManager = "org.freedesktop.DBus.ObjectManager"
    /// The name and the interface of GNOME Shell's extension, on the session bus.
    public static let shell = "org.appstate1.Shell"
    /// Its object.
    public static let shellPath = "/org/appstate1/Shell"
    /// The interface that the session agent exports for its script in KWin, on the session bus.
    public static let windows = "org.appstate1.Windows"
    /// Its object.
    public static let windowsPath = "/org/appstate1/Windows"

    /// The object path of application `number`.
    public static func path(ofApplication number: UInt32) -> String { "\(applications)/\(number)" }

    /// The number in an application's object path; nil for any other path.
    /// Only the canonical spelling counts: no sign, no leading zero.
    public static func applicationNumber(inPath path: some StringProtocol) -> UInt32? {
        guard path.hasPrefix(applications + "/") else { return nil }
        let digits = path.dropFirst(applications.utf8.count + 1)
        guard let first = digits.utf8.first, first != UInt8(ascii: "0"),
            digits.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
        else { return nil }
        return UInt32(digits)
    }
}

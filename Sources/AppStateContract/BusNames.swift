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
    /// The interfaces that the session agent exports for the daemon, on the system bus.
    public static let launcher = "org.appstate1.Launcher"
    public static let presenter = "org.appstate1.Presenter"
    /// Their object.
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

    private static let applicationsPrefix = applications + "/"

    /// The number in an application's object path; nil for any other path.
    /// Only the canonical spelling counts: no sign, no leading zero.
    public static func applicationNumber(inPath path: some StringProtocol) -> UInt32? {
        guard path.hasPrefix(applicationsPrefix) else { return nil }
        var number: UInt32 = 0
        for byte in path.utf8.dropFirst(applicationsPrefix.utf8.count) {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
            let (tens, isTooLong) = number.multipliedReportingOverflow(by: 10)
            let (sum, isTooLarge) = tens.addingReportingOverflow(UInt32(byte - UInt8(ascii: "0")))
            // No number is 0, so a leading zero leads here, too.
            guard !isTooLong, !isTooLarge, sum > 0 else { return nil }
            number = sum
        }
        return number > 0 ? number : nil
    }
}

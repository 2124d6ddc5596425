import Glibc

/// The programs that desktops use as message buses.
public enum BusProgram: String, CaseIterable, Sendable, CustomStringConvertible {
    case daemon = "dbus-daemon"
    /// Fedora and Arch Linux use it.
    case broker = "dbus-broker"

    /// Those that this machine has.
    public static let present = allCases.filter(\.isPresent)
    /// What a machine without dbus-broker lacks.
    public static let whatBrokerNeeds =
        "needs dbus-broker, and python3 with gi.repository.Gio to start it: scripts/setup test"

    public var description: String { rawValue }

    /// Whether this machine has it, and what starts it.
    public var isPresent: Bool { path != nil && (self == .daemon || Self.hasGI) }

    /// Where it is. scripts/setup unpacks dbus-broker into .build: its package would make it the machine's own bus.
    var path: String? {
        let unpacked = Programs.root + "/.build/dbus-broker/usr/bin/dbus-broker"
        return Programs.inPath(rawValue)
            ?? (self == .broker && access(unpacked, X_OK) == 0 ? unpacked : nil)
    }

    static let starterOfBroker = Programs.root + "/Tests/Support/Scripts/broker.py"

    private static let hasGI = Programs.pythonHas("gi.repository.Gio")
}

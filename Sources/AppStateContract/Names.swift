/// The well-known name, paths and interfaces of the D-Bus API, version 1.
public enum BusNames {
    /// The name the daemon owns on the system bus.
    public static let service = "org.appstate1"
    /// The object with the Manager and Reporter interfaces.
    public static let root = "/org/appstate1"
    /// The parent of all application objects.
    public static let applications = "/org/appstate1/application"
    public static let manager = "org.appstate1.Manager"
    public static let reporter = "org.appstate1.Reporter"
    public static let application = "org.appstate1.Application"
    public static let properties = "org.freedesktop.DBus.Properties"
    public static let objectManager = "org.freedesktop.DBus.ObjectManager"
    /// The name and the interface of GNOME Shell's extension, on the session bus.
    public static let shell = "org.appstate1.Shell"
    /// Its object.
    public static let shellPath = "/org/appstate1/Shell"
    /// The interface that the session agent has for its script in KWin, on the session bus.
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

/// The error names of the D-Bus API, and the standard ones it uses.
public enum ErrorName: String, Sendable, CaseIterable {
    case noSuchApplication = "org.appstate1.Error.NoSuchApplication"
    case noSuchProcess = "org.appstate1.Error.NoSuchProcess"
    case alreadyRegistered = "org.appstate1.Error.AlreadyRegistered"
    case notDelegate = "org.appstate1.Error.NotDelegate"
    case noSuchTask = "org.appstate1.Error.NoSuchTask"
    case notSuspendable = "org.appstate1.Error.NotSuspendable"
    case noSessionAgent = "org.appstate1.Error.NoSessionAgent"
    case tooLarge = "org.appstate1.Error.TooLarge"
    case accessDenied = "org.freedesktop.DBus.Error.AccessDenied"
    case interactiveAuthorizationRequired =
        "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"
    case invalidArgs = "org.freedesktop.DBus.Error.InvalidArgs"
    case limitsExceeded = "org.freedesktop.DBus.Error.LimitsExceeded"
    case notSupported = "org.freedesktop.DBus.Error.NotSupported"
    case failed = "org.freedesktop.DBus.Error.Failed"
}

/// The keys that `Register` takes in its options.
public enum RegisterOption: String, Sendable, CaseIterable {
    case delegate
    case launchMode = "launch-mode"
    case suspension
    case reclaimable
    case backgroundModes = "background-modes"
    case launchOptions = "launch-options"
    case adopted
}

/// The keys that `UpdateWindow` and `ReplaceWindows` take in a window's state.
public enum WindowKeyName: String, Sendable, CaseIterable {
    case focused
    case visible
    case minimized
    case title
    case appID = "app-id"
}

/// Why a reporter says that a process must not be suspended by policy. Others may have reasons of their own.
public enum ExemptionReason: String, Sendable, CaseIterable {
    /// It owns the clipboard or the primary selection: who pastes asks it.
    case clipboard
    /// It owns a well-known name on the session bus: who calls it waits.
    case busName = "bus-name"
    /// It plays sound.
    case audio

    /// Whether a reporter may give this word as a reason: `[a-z0-9-]{1,64}`.
    public static func isValid(_ word: String) -> Bool {
        (1...64).contains(word.utf8.count)
            && word.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "-")
            }
    }
}

/// A desktop entry's id, as `Register` takes it. A name, not an identity.
public struct ApplicationID: Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String

    /// The longest id, in bytes (dbus-api: `[A-Za-z0-9._-]{1,255}`).
    public static let maximumLength = 255

    /// Takes `[A-Za-z0-9._-]{1,255}`; nil for anything else.
    public init?(_ text: String) {
        let bytes = text.utf8
        guard (1...Self.maximumLength).contains(bytes.count), bytes.allSatisfy(Self.allows) else {
            return nil
        }
        rawValue = text
    }

    private static func allows(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
            return true
        default:
            return false
        }
    }

    public var description: String { rawValue }
}

/// What the programs say of themselves.
public enum Product {
    public static let version = "0.1.0"
}

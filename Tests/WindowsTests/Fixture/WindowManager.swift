import TestSupport
import Testing

/// The X11 window managers that tests run: two different ones.
enum WindowManager: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case openbox
    case xfwm4

    /// The installed ones; a test reports the others as missing.
    static let present = allCases.filter(\.isPresent)

    var isPresent: Bool {
        Programs.inPath(rawValue) != nil && (self != .xfwm4 || Programs.inPath("dbus-run-session") != nil)
    }

    var testDescription: String { rawValue }

    /// What it prints once windows can be opened; nil where the sign on the root window is enough. openbox sets that
    /// sign before it notices windows that are opened.
    var sign: String? { self == .openbox ? Self.started : nil }

    private static let started = "started"

    /// With its arguments. xfwm4 reads its settings from a service on the session bus.
    var command: [String] {
        switch self {
        case .openbox: ["openbox", "--sm-disable", "--startup", "echo \(Self.started)"]
        case .xfwm4: ["dbus-run-session", "--", "xfwm4", "--compositor=off"]
        }
    }
}

import Foundation
import Glibc
import TestSupport
import Testing

/// The desktops that tests run without a screen, and their requirements.
enum TestDesktop: String, CaseIterable, Sendable {
    case sway
    case i3
    case labwc
    case kwin

    /// The installed ones.
    static let present = allCases.filter { desktop in
        desktop.programs.allSatisfy { Programs.inPath($0) != nil }
            && ["WindowActor", "WaylandActor"].allSatisfy { Programs.built($0) != nil }
            && (desktop.uid == nil || othersCanRun)
    }

    var isPresent: Bool { Self.present.contains(self) }

    private var programs: [String] {
        switch self {
        case .sway: ["sway", "swaymsg", "Xwayland"]
        case .i3: ["i3", "i3-msg", "Xvfb"]
        case .labwc: ["labwc", "Xwayland"]
        case .kwin: ["kwin_wayland", "Xwayland", "dbus-run-session"]
        }
    }

    /// The user that it runs as; nil: ours. sway refuses to run as root.
    var uid: UInt32? { self == .sway && getuid() == 0 ? Self.nobody : nil }

    static let nobody: UInt32 = getpwnam("nobody")?.pointee.pw_uid ?? 65_534

    /// Whether the user nobody can run the built programs.
    private static let othersCanRun: Bool = {
        guard let program = Programs.built("WaylandActor"), Programs.inPath("setpriv") != nil,
            let probe = try? Child(program, environment: ["WAYLAND_DISPLAY": "/nonexistent"], uid: nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(1)
    }()

    /// A directory for one of them.
    static func directory(for uid: UInt32? = nil) throws -> String {
        var template = Array("\(NSTemporaryDirectory())desktop.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw TestFailure("no temporary directory") }
        let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if let uid { chown(directory, uid, uid) }
        return directory
    }

    /// Variables that make a wlroots compositor run without a screen.
    static func headless(in directory: String) -> [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "WLR_BACKENDS": "headless",
            "WLR_RENDERER": "pixman", "WLR_LIBINPUT_NO_DEVICES": "1", "DISPLAY": nil, "WAYLAND_DISPLAY": nil,
            "SWAYSOCK": nil,
        ]
    }

    /// Starts a wlroots compositor; returns its names in the form of WAYLAND_DISPLAY and DISPLAY.
    func startCompositor(
        in directory: String, _ more: [String: String?] = [:]
    ) throws -> (process: Child, display: String, x11Display: String) {
        let sign = "echo STARTED $WAYLAND_DISPLAY $DISPLAY"
        var arguments = ["-C", directory, "-s", "sh -c '\(sign)'"]
        if self == .sway {
            let file = directory + "/config"
            try "xwayland enable\nexec \(sign)\n".write(toFile: file, atomically: true, encoding: .utf8)
            arguments = ["-c", file]
        }
        let process = try Child(
            rawValue, arguments, environment: Self.headless(in: directory).merging(more) { $1 }, uid: uid,
            leadsGroup: true)
        let names = try process.waitForLine(containing: "STARTED ").split(separator: " ")
        guard names.count == 3 else { throw TestFailure("\(self) printed \(names)") }
        return (process, "\(directory)/\(names[1])", String(names[2]))
    }
}

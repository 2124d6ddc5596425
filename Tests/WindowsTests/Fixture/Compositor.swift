import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// A Wayland compositor without a screen. It ends when it is let go.
final class Compositor {
    /// Those that tell of windows by zwlr_foreign_toplevel_manager_v1, and run here.
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case labwc
        case sway

        static let present = allCases.filter(\.isPresent)

        var isPresent: Bool {
            Programs.inPath(rawValue) != nil && Programs.inPath("Xwayland") != nil
                && (self != .sway || getuid() != 0 || Compositor.othersCanRun)
        }

        var testDescription: String { rawValue }
    }

    let kind: Kind
    /// As in WAYLAND_DISPLAY, with its directories.
    let display: String
    /// Of its Xwayland, which starts with its first client.
    let x11Display: String
    /// sway refuses to be root.
    let uid: UInt32?
    private let directory: String
    private let process: Child

    static let isAvailable = !Kind.present.isEmpty && Programs.built("WaylandActor") != nil
    static let whatIsMissing: Comment =
        "needs Xwayland, and labwc, or sway, as root with programs that nobody can run: scripts/setup test"

    /// Whether user nobody can run what was built.
    fileprivate static let othersCanRun: Bool = {
        guard let program = Programs.built("WaylandActor"), Programs.inPath("setpriv") != nil,
            let probe = try? Child(program, environment: ["WAYLAND_DISPLAY": "/nonexistent"], uid: nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(1)
    }()
    static let nobody: UInt32 = getpwnam("nobody")?.pointee.pw_uid ?? 65_534

    init(_ kind: Kind) throws {
        self.kind = kind
        uid = kind == .sway && getuid() == 0 ? Self.nobody : nil
        directory = try Self.temporaryDirectory()
        if let uid { chown(directory, uid, uid) }
        let file = directory + "/config"
        let sign = "echo STARTED $WAYLAND_DISPLAY $DISPLAY"
        let arguments: [String]
        switch kind {
        case .labwc: arguments = ["-C", directory, "-s", "sh -c '\(sign)'"]
        case .sway:
            try "xwayland enable\nexec \(sign)\n".write(toFile: file, atomically: true, encoding: .utf8)
            arguments = ["-c", file]
        }
        process = try Child(
            kind.rawValue, arguments, environment: Self.headless(in: directory), uid: uid)
        let names = try process.waitForLine(containing: "STARTED ").split(separator: " ")
        guard names.count == 3 else { throw TestFailure("\(kind) says \(names)") }
        display = "\(directory)/\(names[1])"
        x11Display = String(names[2])
    }

    deinit {
        try? process.end()
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// Variables that have a compositor on wlroots run without a screen.
    static func headless(in directory: String) -> [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "WLR_BACKENDS": "headless",
            "WLR_RENDERER": "pixman",
            "WLR_LIBINPUT_NO_DEVICES": "1", "DISPLAY": nil, "WAYLAND_DISPLAY": nil, "SWAYSOCK": nil,
        ]
    }

    static func temporaryDirectory() throws -> String {
        var template = Array("\(NSTemporaryDirectory())compositor.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw TestFailure("no temporary directory") }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    var pid: Int32 { process.pid }

    /// For its clients, and for an agent that watches it by this protocol.
    var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "WAYLAND_DISPLAY": display, "DISPLAY": x11Display, "SWAYSOCK": nil,
            "I3SOCK": nil,
        ]
    }

    /// A Wayland application, as WaylandActor/Main.swift describes it.
    ///
    /// - Parameter name: of its program: that is how its windows are found to be its own.
    func app(_ name: String = "WaylandActor", prefix: [String] = []) throws -> WindowApp {
        let program = "\(directory)/\(name)"
        if access(program, F_OK) != 0, let built = Programs.built("WaylandActor") {
            try FileManager.default.createSymbolicLink(atPath: program, withDestinationPath: built)
        }
        return try WindowApp(environment: environment, prefix: prefix, uid: uid, program: program)
    }

    /// An application on its X server.
    func x11App() throws -> WindowApp { try WindowApp(environment: environment, uid: uid) }

    /// An observer of its windows.
    func watch() throws -> Watch {
        Watch(try ForeignToplevelObserver(display: display, x11Display: x11Display))
    }

    /// Ends it.
    func end(_ signal: Int32 = SIGTERM) throws {
        if signal == SIGTERM { return try process.end() }
        process.kill(signal)
        try process.waitForExit()
    }
}

import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// sway without a screen, or i3 on an X server without one. It ends when it is let go.
final class Tiler {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case sway
        case i3

        static let present = allCases.filter(\.isPresent)

        var isPresent: Bool {
            switch self {
            case .sway:
                ["sway", "swaymsg", "Xwayland"].allSatisfy { Programs.inPath($0) != nil }
                    && (getuid() != 0 || Tiler.othersCanRun)
            case .i3: ["i3", "i3-msg", "Xvfb"].allSatisfy { Programs.inPath($0) != nil }
            }
        }

        var testDescription: String { rawValue }
    }

    let kind: Kind
    /// Of its IPC.
    let socket: String
    /// The X server: i3's, or sway's Xwayland, which starts with its first client.
    let display: String
    /// sway's own.
    private let waylandDisplay: String?
    /// sway refuses to be root.
    let uid: UInt32?
    private let directory: String
    private let process: Child
    private let server: Child?

    static let isAvailable = !Kind.present.isEmpty && Programs.built("WindowActor") != nil
    static let whatIsMissing: Comment =
        "needs sway with Xwayland, and as root programs that nobody can run; or i3 with Xvfb: scripts/setup test"

    /// Whether user nobody can run what was built.
    fileprivate static let othersCanRun: Bool = {
        guard let program = Programs.built("WindowActor"), Programs.inPath("setpriv") != nil,
            let probe = try? Child(program, environment: ["DISPLAY": nil], uid: nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(1)
    }()
    private static let nobody: UInt32 = getpwnam("nobody")?.pointee.pw_uid ?? 65_534

    init(_ kind: Kind) throws {
        self.kind = kind
        uid = kind == .sway && getuid() == 0 ? Self.nobody : nil
        var template = Array("\(NSTemporaryDirectory())tiler.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw TestFailure("no temporary directory") }
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if let uid { chown(directory, uid, uid) }
        socket = directory + "/ipc"
        let file = directory + "/config"
        switch kind {
        case .sway:
            try "xwayland enable\nexec echo DISPLAY=$DISPLAY $WAYLAND_DISPLAY\n".write(
                toFile: file, atomically: true, encoding: .utf8)
            server = nil
            process = try Child(
                "sway", ["-c", file],
                environment: [
                    "XDG_RUNTIME_DIR": directory, "SWAYSOCK": socket, "WLR_BACKENDS": "headless",
                    "WLR_RENDERER": "pixman", "WLR_LIBINPUT_NO_DEVICES": "1", "HOME": directory,
                    "DISPLAY": nil,
                    "WAYLAND_DISPLAY": nil,
                ], uid: uid)
            let names = try process.waitForLine(containing: "DISPLAY=:").dropFirst("DISPLAY=".count)
            display = String(names.prefix { $0 != " " })
            waylandDisplay = String(names.drop { $0 != " " }.dropFirst())
        case .i3:
            try "# i3 config file (v4)\nipc-socket \(socket)\nexec echo started\n".write(
                toFile: file, atomically: true, encoding: .utf8)
            (server, display) = try Display.startServer()
            waylandDisplay = nil
            process = try Child("i3", ["-c", file], environment: ["DISPLAY": display, "HOME": directory])
            try process.waitForLine(containing: "started")
        }
    }

    deinit {
        try? end()
        try? FileManager.default.removeItem(atPath: directory)
    }

    var environment: [String: String?] {
        [
            "DISPLAY": display, "XDG_RUNTIME_DIR": directory, "SWAYSOCK": kind == .sway ? socket : nil,
            "I3SOCK": socket,
            "WAYLAND_DISPLAY": waylandDisplay,
        ]
    }

    /// Has it carry out a command.
    func command(_ command: String) throws {
        let child = try Child(
            kind == .sway ? "swaymsg" : "i3-msg", ["-s", socket, command], environment: environment)
        guard try child.waitForExit() == .exited(0) else {
            throw TestFailure("\(command): \(child.output)\(child.errors)")
        }
    }

    /// An application on its X server.
    func app() throws -> WindowApp { try WindowApp(environment: environment, uid: uid) }

    /// An observer of its windows.
    func watch() throws -> Watch {
        switch kind {
        case .sway: Watch(try SwayObserver(sway: socket))
        case .i3: Watch(try SwayObserver(i3: socket, display: display))
        }
    }

    /// Ends it.
    func end() throws { try process.end() }
}

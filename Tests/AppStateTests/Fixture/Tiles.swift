import Foundation
import Glibc
import TestSupport
import Testing

/// sway without a screen, and the session agent that reports its windows to a theatre's daemon. They end with this
/// object. sway refuses to run as root, so all of this belongs to another user where the tests do.
final class Tiles {
    private let directory: String
    private let compositor: Child
    private let agent: Child
    private let environment: [String: String?]
    private static let uid: UInt32? = getuid() == 0 ? getpwnam("nobody")?.pointee.pw_uid : nil

    static let isAvailable =
        ["sway", "swaymsg", "setpriv"].allSatisfy { Programs.inPath($0) != nil } && canRun("appstate-session")
    static let whatIsMissing: Comment = "needs sway, as root with programs that nobody can run"

    /// Whether that user can run what was built.
    private static func canRun(_ name: String) -> Bool {
        guard let program = Programs.built(name) else { return false }
        return (try? Child(program, ["--version"], uid: uid).waitForExit()) == .exited(0)
    }

    init(_ theatre: Theatre) throws {
        directory = theatre.bus.directory + "/tiles"
        mkdir(directory, 0o700)
        if let uid = Self.uid { chown(directory, uid, uid) }
        let file = theatre.bus.directory + "/sway"
        let sign = "echo STARTED $WAYLAND_DISPLAY $SWAYSOCK"
        try "xwayland disable\nexec \(sign)\n".write(toFile: file, atomically: true, encoding: .utf8)
        let headless: [String: String?] = [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "WLR_BACKENDS": "headless",
            "WLR_RENDERER": "pixman",
            "WLR_LIBINPUT_NO_DEVICES": "1", "DISPLAY": nil, "WAYLAND_DISPLAY": nil, "SWAYSOCK": nil,
        ]
        compositor = try Child("sway", ["-c", file], environment: headless, uid: Self.uid, leadsGroup: true)
        let names = try compositor.waitForLine(containing: "STARTED ").split(separator: " ").map(String.init)
        guard names.count == 3 else { throw TestFailure("sway printed \(names)") }
        environment = theatre.bus.environment.mapValues { $0 }.merging([
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "WAYLAND_DISPLAY": "\(directory)/\(names[1])",
            "SWAYSOCK": names[2], "DISPLAY": nil, "GDK_BACKEND": "wayland", "GSK_RENDERER": "cairo",
        ]) { $1 }
        agent = try Child(
            Programs.built("appstate-session") ?? "appstate-session", ["--verbose"], environment: environment,
            uid: Self.uid)
    }

    deinit { try? compositor.end(SIGTERM) }

    /// Runs a program in it, from a place where its user may run it.
    func run(_ program: String) throws -> Child {
        let copy = "\(directory)/\((program as NSString).lastPathComponent)"
        try Programs.copy(program, to: copy)
        chmod(copy, 0o755)
        return try Child(copy, environment: environment, uid: Self.uid)
    }

    /// Gives sway a command; returns what it prints.
    func command(_ words: String...) throws -> String {
        let child = try Child("swaymsg", words, environment: environment, uid: Self.uid)
        guard try child.waitForExit() == .exited(0) else {
            throw TestFailure("swaymsg \(words): \(child.output)\(child.errors)\(agent.errors)")
        }
        return child.output
    }

    /// The ids of a process's windows, in the order in which they were opened.
    func windows(of pid: Int32) throws -> [Int] {
        let tree = try JSONSerialization.jsonObject(with: Data(command("-t", "get_tree", "-r").utf8))
        func windows(_ node: Any?) -> [Int] {
            guard let node = node as? [String: Any] else { return [] }
            let below = ["nodes", "floating_nodes"].flatMap { (node[$0] as? [Any] ?? []).flatMap(windows) }
            guard node["pid"] as? Int == Int(pid), let id = node["id"] as? Int else { return below }
            return [id] + below
        }
        return windows(tree).sorted()
    }
}

import Foundation
import Glibc
import TestSupport
import Testing

/// An X server without a screen, openbox, and the session agent that reports the windows to a theatre's daemon. They
/// end with this object.
final class Screen {
    private let name: String
    private let server: Child
    private let manager: Child
    private let agent: Child
    private let ready: NotifySocket

    static let isAvailable =
        ["Xvfb", "openbox", "xdotool", "wmctrl"].allSatisfy { Programs.inPath($0) != nil }
        && Programs.built("appstate-session") != nil && Programs.built("WindowActor") != nil
    static let whatIsMissing: Comment = "needs Xvfb, openbox, xdotool and wmctrl: scripts/setup test"

    /// - Parameter environment: additional variables for the agent.
    init(_ theatre: Theatre, environment: [String: String] = [:]) throws {
        let number = try PipeEnds()
        server = try Child(
            "Xvfb", ["-displayfd", "3", "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"],
            descriptors: [3: number.write])
        close(number.takeWrite())
        name = ":" + (try Self.line(from: number.read))
        let display: [String: String?] = [
            "DISPLAY": name, "WAYLAND_DISPLAY": nil, "SWAYSOCK": nil, "I3SOCK": nil,
        ]
        // openbox prints that when windows can be opened.
        manager = try Child(
            "openbox", ["--sm-disable", "--startup", "echo started"], environment: display)
        try manager.waitForLine(containing: "started")
        ready = try NotifySocket(in: theatre.bus.directory + "/agent")
        let own: [String: String?] = environment.mapValues { $0 }.merging(["NOTIFY_SOCKET": ready.path]) {
            $1
        }
        agent = try Child(
            Programs.built("appstate-session") ?? "appstate-session", ["--verbose"],
            environment: theatre.bus.environment.mapValues { $0 }.merging(display) { $1 }.merging(own) { $1 })
        try ready.wait(for: "READY=1", from: agent)
    }

    deinit {
        server.kill(SIGTERM)
        _ = try? server.waitForExit()
        _ = try? manager.waitForExit()
    }

    /// For programs with windows on it.
    var environment: [String: String?] {
        ["DISPLAY": name, "WAYLAND_DISPLAY": nil, "GDK_BACKEND": "x11", "GSK_RENDERER": "cairo"]
    }

    func run(_ program: String, _ arguments: [String]) throws -> String {
        let child = try Child(program, arguments, environment: environment)
        guard try child.waitForExit() == .exited(0) else {
            throw TestFailure(
                "\(program) \(arguments.joined(separator: " ")): \(child.errors)\(agent.errors)")
        }
        return child.output
    }

    /// The first window of a process, once it is visible.
    func window(of pid: Int32) throws -> String { try windows(of: pid, atLeast: 1)[0] }

    /// The visible windows of a process, once there are as many.
    func windows(of pid: Int32, atLeast count: Int) throws -> [String] {
        var windows: [String] = []
        let found = eventually {
            let child = try? Child(
                "xdotool", ["search", "--onlyvisible", "--pid", "\(pid)"], environment: environment)
            guard (try? child?.waitForExit()) == .exited(0) else { return false }
            windows = child?.output.split(separator: "\n").map(String.init) ?? []
            return windows.count >= count
        }
        guard found else { throw TestFailure("process \(pid) has \(windows.count) windows") }
        return windows
    }

    /// A window of another application. It ends with the object.
    func other() throws -> Other { try Other(environment) }

    final class Other {
        private let process: Child
        private let input: Int32
        let window: String

        fileprivate init(_ environment: [String: String?]) throws {
            var ends: [Int32] = [-1, -1]
            guard
                socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0
            else { throw TestFailure("socketpair: \(String(cString: strerror(errno)))") }
            input = ends[0]
            defer { close(ends[1]) }
            process = try Child(
                Programs.built("WindowActor") ?? "WindowActor", environment: environment,
                descriptors: [STDIN_FILENO: ends[1]])
            try process.waitForLine(containing: "ready")
            let line = Array("1 open Other\n".utf8)
            _ = send(input, line, line.count, Int32(MSG_NOSIGNAL))
            window = String(try process.waitForLine(containing: "#1 ok ").dropFirst("#1 ok ".count))
        }

        deinit { close(input) }
    }

    /// Xvfb prints its display number once it listens.
    private static func line(from descriptor: Int32) throws -> String {
        var line: [UInt8] = []
        while true {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            var byte: UInt8 = 0
            guard poll(&ready, 1, 300_000) == 1, read(descriptor, &byte, 1) == 1 else {
                throw TestFailure("Xvfb does not print its display number")
            }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
    }
}

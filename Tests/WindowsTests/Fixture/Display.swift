import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// An X server without a screen, on its own display, with a window manager. It ends when it is released.
final class Display {
    /// In the form of DISPLAY.
    let name: String
    let manager: WindowManager
    private let server: Child
    private var managerProcess: Child
    private var managerWindow: String
    /// Waits until a window manager runs.
    private let usher: WindowApp

    static let isAvailable =
        ["Xvfb", "xdotool", "wmctrl"].allSatisfy { Programs.inPath($0) != nil }
        && Programs.built("WindowActor") != nil
        && !WindowManager.present.isEmpty
    static let whatIsMissing: Comment =
        "needs Xvfb, xdotool, wmctrl, and openbox or xfwm4: scripts/setup test"

    /// Starts both and waits until windows are managed; four workspaces.
    ///
    /// - Parameter isAlone: no other server gets its number when it has ended.
    init(_ manager: WindowManager, isAlone: Bool = false) throws {
        self.manager = manager
        (server, name) = try Self.startServer(
            isAlone ? [":\(Int32.random(in: 2_000...60_000))"] : [])
        managerProcess = try Self.start(manager, [], on: name)
        usher = try WindowApp(environment: ["DISPLAY": name])
        managerWindow = try usher.ask("manager")
        try run("xdotool", ["set_num_desktops", "4"])
    }

    deinit {
        // The window manager ends with the server, and so does everything started for it.
        try? end()
        try? managerProcess.waitOrKill()
    }

    var environment: [String: String?] {
        ["DISPLAY": name, "WAYLAND_DISPLAY": nil, "SWAYSOCK": nil, "I3SOCK": nil]
    }

    /// Runs a program on the display and waits for its end.
    @discardableResult
    func run(_ program: String, _ arguments: [String]) throws -> String {
        let child = try Child(program, arguments, environment: environment)
        guard try child.waitForExit() == .exited(0) else {
            throw TestFailure("\(program) \(arguments.joined(separator: " ")): \(child.errors)")
        }
        return child.output
    }

    /// An application on this display.
    ///
    /// - Parameter bus: the environment of a system bus on which it can register itself.
    func app(prefix: [String] = [], on bus: [String: String?] = [:]) throws -> WindowApp {
        try WindowApp(environment: environment.merging(bus) { $1 }, prefix: prefix)
    }

    /// An observer of this display.
    func watch() throws -> Watch { Watch(try X11Observer(display: name)) }

    /// Another window manager replaces this one, which either gives up its selection or was killed before.
    func replaceManager(afterKilling: Bool) throws {
        let former = managerProcess
        if afterKilling { try killManager() }
        managerProcess = try Self.start(manager, afterKilling ? [] : ["--replace"], on: name)
        // The successor of a killed window manager may get the same window number.
        managerWindow = try usher.ask(afterKilling ? "manager" : "manager \(managerWindow)")
        try former.waitForExit()
    }

    /// The window manager itself, not the process that started it.
    private func killManager() throws {
        let own = managerProcess.pid
        let children = try String(contentsOfFile: "/proc/\(own)/task/\(own)/children", encoding: .utf8)
        let pids = children.split(separator: " ").compactMap { Int32($0) }
        let target = pids.first { pid in
            (try? String(contentsOfFile: "/proc/\(pid)/comm", encoding: .utf8)) == manager.rawValue + "\n"
        }
        guard kill(target ?? own, SIGKILL) == 0 else { throw TestFailure("cannot kill \(manager)") }
    }

    /// Ends the X server.
    func end() throws { try server.end() }

    /// A bare X server and its display: the lowest number that is free, if none is given.
    ///
    /// Xvfb binds its socket before it locks the number, and compositors do it the other way around. If both choose the
    /// same number at once, Xvfb ends, and is started again.
    static func startServer(_ number: [String] = []) throws -> (Child, String) {
        let options = ["-displayfd", "3", "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"]
        let deadline = ContinuousClock.now + .seconds(300)
        while true {
            let told = try PipeEnds()
            let server = try Child("Xvfb", number + options, descriptors: [3: told.write])
            close(told.takeWrite())
            do {
                let number = try line(from: told.read, of: server)
                return (server, ":" + number)
            } catch  where ContinuousClock.now < deadline {
                try server.waitOrKill()
                poll(nil, 0, Int32.random(in: 10...200))
            }
        }
    }

    private static func start(_ manager: WindowManager, _ more: [String], on name: String) throws -> Child {
        let command = manager.command + more
        let process = try Child(
            command[0], Array(command.dropFirst()), environment: ["DISPLAY": name, "WAYLAND_DISPLAY": nil])
        if let sign = manager.sign { try process.waitForLine(containing: sign) }
        return process
    }

    /// Xvfb prints its display number once it listens and ends if it cannot.
    private static func line(from descriptor: Int32, of server: Child) throws -> String {
        var line: [UInt8] = []
        while true {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            var byte: UInt8 = 0
            guard poll(&ready, 1, 300_000) == 1, read(descriptor, &byte, 1) == 1 else {
                throw TestFailure("Xvfb printed no display number\n\(server.errors)")
            }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
    }
}

import Foundation
import Glibc
import TestSupport
import Testing

@testable import Windows

/// sway without a screen, or i3 on an X server without one. It ends when it is released.
final class Tiler {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case sway
        case i3

        static let present = allCases.filter(\.isPresent)

        var isPresent: Bool { desktop.isPresent }
        var desktop: TestDesktop { self == .sway ? .sway : .i3 }
        var testDescription: String { rawValue }
    }

    let kind: Kind
    /// The socket of its IPC.
    let socket: String
    /// The X server: i3's, or sway's Xwayland, which starts with its first client.
    let display: String
    /// sway's own display.
    private let waylandDisplay: String?
    let uid: UInt32?
    private let directory: String
    private let process: Child
    private let server: Child?

    static let isAvailable = !Kind.present.isEmpty
    static let whatIsMissing: Comment =
        "needs sway with Xwayland, and as root programs that nobody can run; or i3 with Xvfb: scripts/setup test"

    init(_ kind: Kind) throws {
        self.kind = kind
        uid = kind.desktop.uid
        directory = try TestDesktop.directory(for: uid)
        socket = directory + "/ipc"
        switch kind {
        case .sway:
            let started = try kind.desktop.startCompositor(in: directory, ["SWAYSOCK": socket])
            (process, display, waylandDisplay) = (started.process, started.x11Display, started.display)
            server = nil
        case .i3:
            let file = directory + "/config"
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

    /// Makes it execute a command.
    func command(_ command: String) throws {
        guard kind == .i3 else { return try tellSway(command) }
        let child = try Child("i3-msg", ["-s", socket, command], environment: environment)
        guard try child.waitForExit() == .exited(0) else {
            throw TestFailure("\(command): \(child.output)\(child.errors)")
        }
    }

    /// What swaymsg does, except that it waits for an answer for 3 s only.
    private func tellSway(_ command: String) throws {
        let connection = try IPCConnection(path: socket)
        try connection.send(.runCommand, command)
        var ready = pollfd(fd: connection.descriptor, events: Int16(POLLIN), revents: 0)
        while poll(&ready, 1, 300_000) == 1 {
            guard case .answer(_, let text) = try connection.receive().first else { continue }
            let results = try JSONSerialization.jsonObject(with: Data(text)) as? [[String: Any]]
            guard results?.allSatisfy({ $0["success"] as? Bool == true }) == true else {
                throw TestFailure("\(command): \(String(decoding: text, as: UTF8.self))")
            }
            return
        }
        throw TestFailure("\(command): sway does not answer")
    }

    /// An application on its X server.
    func app() throws -> WindowApp { try WindowApp(environment: environment, uid: uid) }

    /// An observer of its windows.
    func watch() throws -> Watch {
        switch kind {
        case .sway: try Watch.patiently { try SwayObserver(sway: socket) }
        case .i3: try Watch.patiently { try SwayObserver(i3: socket, display: display) }
        }
    }

    /// Ends it.
    func end() throws { try process.end() }
}

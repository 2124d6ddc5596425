import AppStateBus
import Foundation
import Glibc
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// KWin on Wayland, without a screen. It ends when it is released.
final class KWin {
    /// In the form of WAYLAND_DISPLAY, with its directories.
    let display: String
    let x11Display: String
    /// Its session bus; nil: an unknown one that is started for it.
    let bus: PrivateBus?
    private let directory: String
    private let process: Child

    static let isAvailable = TestDesktop.kwin.isPresent
    static let whatIsMissing: Comment =
        "needs kwin_wayland, Xwayland and dbus-run-session: scripts/setup test"

    /// - Parameters:
    ///   - checksPermissions: whether the protocol is restricted to clients whose desktop entry requests it.
    ///   - entry: a desktop entry.
    ///   - bus: its session bus.
    init(checksPermissions: Bool = false, entry: String? = nil, bus: PrivateBus? = nil) throws {
        directory = try TestDesktop.directory()
        self.bus = bus
        if let entry {
            let applications = directory + "/data/applications"
            try FileManager.default.createDirectory(
                atPath: applications, withIntermediateDirectories: true)
            try entry.write(toFile: applications + "/entry.desktop", atomically: true, encoding: .utf8)
        }
        display = directory + "/wayland-k"
        let started = directory + "/started"
        // A copy without the file's capability, which the machine may lack. It is recognised by its name.
        let program = directory + "/kwin_wayland"
        try Programs.copy(Programs.inPath("kwin_wayland") ?? "", to: program)
        let script = directory + "/application"
        try "#!/bin/sh\necho STARTED $DISPLAY >\(started)\n".write(
            toFile: script, atomically: true, encoding: .utf8)
        chmod(script, 0o755)
        mkfifo(started, 0o600)
        var variables: [String: String?] = [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "XDG_DATA_HOME": directory + "/data",
            "KWIN_COMPOSE": "Q", "KWIN_WAYLAND_NO_PERMISSION_CHECKS": checksPermissions ? nil : "1",
            "QT_LOGGING_RULES": "*=false", "DISPLAY": nil, "WAYLAND_DISPLAY": nil,
        ]
        var command = [
            program, "--virtual", "--xwayland", "--no-lockscreen", "--no-global-shortcuts", "--socket",
            "wayland-k", script,
        ]
        if let bus {
            variables["DBUS_SESSION_BUS_ADDRESS"] = bus.address
        } else {
            command = ["dbus-run-session", "--"] + command
        }
        var attempt = try Self.start(command, variables, started, patience: 60_000)
        // On a busy machine KWin 5.27 was seen to wait for its Xwayland forever, or for a long time.
        for patience in [120_000, 300_000] where attempt.display == nil {
            try Self.end(attempt.process, SIGKILL)
            attempt = try Self.start(command, variables, started, patience: patience)
        }
        process = attempt.process
        guard let found = attempt.display else {
            _ = process.advance()
            throw TestFailure("KWin starts no application\n\(process.errors)")
        }
        x11Display = found
    }

    /// - Returns: the process, and its X server's display, once it has started the application that `started` names.
    private static func start(
        _ command: [String], _ variables: [String: String?], _ started: String, patience: Int
    ) throws -> (process: Child, display: String?) {
        let sign = try Child("cat", [started])
        let process = try Child(
            command[0], Array(command.dropFirst()), environment: variables, leadsGroup: true)
        let line = try? sign.waitForLine(containing: "STARTED :", timeout: patience)
        return (process, line.map { String($0.dropFirst("STARTED ".count)) })
    }

    deinit {
        try? end()
        try? FileManager.default.removeItem(atPath: directory)
    }

    var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "WAYLAND_DISPLAY": display, "DISPLAY": x11Display, "SWAYSOCK": nil,
            "I3SOCK": nil, "DBUS_SESSION_BUS_ADDRESS": bus?.address, "XDG_DATA_HOME": directory + "/data",
        ]
    }

    /// A Wayland application, as WaylandActor/Main.swift describes it.
    func app(prefix: [String] = []) throws -> WindowApp {
        try WindowApp(environment: environment, prefix: prefix, program: Programs.built("WaylandActor"))
    }

    /// An application on its X server.
    func x11App() throws -> WindowApp { try WindowApp(environment: environment) }

    /// An observer of its windows.
    func watch() throws -> Watch { try Watch.patiently { try PlasmaObserver(display: display) } }

    /// A KWin that restricts its protocol to WaylandActor, on a private bus, with our script installed.
    static func refusing() throws -> KWin {
        let actor = URL(fileURLWithPath: Programs.built("WaylandActor") ?? "").resolvingSymlinksInPath().path
        return try withScript(
            checksPermissions: true,
            entry: """
                [Desktop Entry]
                Type=Application
                Name=A taskbar
                Exec=\(actor)
                X-KDE-Wayland-Interfaces=org_kde_plasma_window_management

                """)
    }

    /// A KWin on a private bus, with our script installed by `make install-kwin`.
    static func withScript(checksPermissions: Bool = false, entry: String? = nil) throws -> KWin {
        let bus = try PrivateBus(
            policy: """
                <policy context="default"><allow own="*"/><allow send_destination="*"/>\
                <allow send_type="method_call"/></policy>
                """)
        let kwin = try KWin(checksPermissions: checksPermissions, entry: entry, bus: bus)
        let make = try Child(
            "make", ["-s", "-C", Programs.root, "install-kwin", "DESTDIR=", "datadir=\(kwin.directory)/data"])
        guard try make.waitForExit() == .exited(0) else { throw TestFailure("make: \(make.errors)") }
        return kwin
    }

    /// How the agent watches KWin.
    enum Way: CaseIterable, CustomTestStringConvertible {
        case byProtocol
        case byScript

        var testDescription: String { self == .byProtocol ? "by its protocol" : "by a script" }
    }

    /// A KWin that the agent can watch in this way.
    static func letting(_ way: Way) throws -> KWin { try way == .byProtocol ? KWin() : refusing() }

    /// An observer of its windows, in this way.
    func watch(_ way: Way) throws -> Watch { try way == .byProtocol ? watch() : scriptWatch() }

    /// An observer of its windows that uses the script.
    func scriptWatch(directories: [String]? = nil) throws -> Watch {
        let loop = try EventLoop()
        let session = appstate_session.SessionBus(
            address: bus?.address ?? "", loop: loop, journal: Journal(identifier: "test"))
        return try Watch.patiently(loop: loop) {
            try KWinScriptObserver(
                session: session, display: display,
                directories: directories ?? [directory + "/data"], runtime: directory)
        }
    }

    /// Runs a script in it.
    func runScript(_ text: String) throws {
        let path = directory + "/another"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        let connection = try Bus.open(address: bus?.address ?? "")
        let loading = try connection.newCall(
            destination: "org.kde.KWin", path: "/Scripting", interface: "org.kde.kwin.Scripting",
            member: "loadScript")
        try loading.append(path)
        let number = try connection.call(loading, timeout: 300_000_000).readInt32()
        // The paths of KWin 6 and of KWin 5.
        let ran = ["/Scripting/Script\(number)", "/\(number)"].contains { path in
            let run = try? connection.newCall(
                destination: "org.kde.KWin", path: path, interface: "org.kde.kwin.Script", member: "run")
            guard let run, (try? connection.call(run, timeout: 300_000_000)) != nil else { return false }
            return true
        }
        guard ran else { throw TestFailure("KWin runs no script") }
    }

    /// The files beside its sockets.
    func files() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: directory) }

    /// Ends it and the bus that was started for it.
    func end(_ signal: Int32 = SIGTERM) throws { try Self.end(process, signal) }

    private static func end(_ process: Child, _ signal: Int32) throws {
        let own = process.pid
        let children = try String(contentsOfFile: "/proc/\(own)/task/\(own)/children", encoding: .utf8)
        for pid in [own] + children.split(separator: " ").compactMap({ Int32($0) })
        where (try? String(contentsOfFile: "/proc/\(pid)/comm", encoding: .utf8)) == "kwin_wayland\n" {
            kill(pid, signal)
        }
        try process.waitOrKill(patience: 60_000)
    }
}

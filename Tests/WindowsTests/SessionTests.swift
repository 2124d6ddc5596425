import Foundation
import Glibc
import TestSupport
import Testing

/// From the window manager to a subscriber; only the agent calls Reporter.
@Suite(
    "Session agent, X11", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct SessionTests {
    @Test("changes of windows reach a subscriber as the right edges", arguments: WindowManager.present)
    func walks(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let station = try Station()
        try station.startAgent(environment: display.environment)
        let (alpha, beta) = (try display.app(), try display.app())
        let a = try station.register("org.example.Alpha", alpha.pid)
        let b = try station.register("org.example.Beta", beta.pid)
        let first = try alpha.open("Alpha")
        try display.run("xdotool", ["windowactivate", "--sync", "\(first)"])
        try station.wait(for: a, toBe: "active")
        let second = try beta.open("Beta")
        try display.run("xdotool", ["windowactivate", "--sync", "\(second)"])
        try station.wait(for: b, toBe: "active")
        try station.wait(for: a, toBe: "inactive")
        station.forget()

        try display.run("xdotool", ["windowactivate", "\(first)"])
        try station.wait(forWalks: [a: ["inactive→active"], b: ["active→inactive"]], "focus")
        try display.run("xdotool", ["windowminimize", "\(first)"])
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→active"]], "minimize")
        try display.run("xdotool", ["windowactivate", "\(first)"])
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["active→inactive"]], "restore")
        try display.run("xdotool", ["set_desktop", "1"])
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→background"]], "workspace"
        )
        try display.run("xdotool", ["set_desktop", "0"])
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["background→inactive"]], "back")
        try display.run("wmctrl", ["-k", "on"])
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→background"]],
            "show desktop")
        try display.run("wmctrl", ["-k", "off"])
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["background→inactive"]],
            "show windows")
        try display.run("wmctrl", ["-i", "-c", "\(first)"])
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→active"]], "close")
        beta.process.kill(SIGKILL)
        #expect(try station.waitForRemoval(of: b) == "killed")
    }

    @Test(
        "a client in its own PID namespace is known by its pid in ours",
        .enabled(if: getuid() == 0 && Programs.inPath("unshare") != nil, "needs root and unshare"),
        arguments: WindowManager.present)
    func namespace(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let station = try Station()
        try station.startAgent(environment: display.environment)
        let app = try display.app(prefix: ["unshare", "--pid", "--fork", "--kill-child", "--"])
        let path = try station.register("org.example.Alpha", app.child())
        let window = try app.open("Alpha")
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.wait(for: path, toBe: "active")
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "background")
    }

    @Test(
        "after 1,000 focus changes among 200 windows of 10 applications the last one counts",
        arguments: WindowManager.present)
    func burst(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let station = try Station()
        try station.startAgent([], environment: display.environment)
        let apps = try (0..<10).map { _ in try display.app() }
        let paths = try apps.enumerated().map { try station.register("org.example.App\($0)", $1.pid) }
        let windows = try apps.map { try $0.ask("open-many 20 App").split(separator: " ").map(String.init) }
        let order = (0..<1_000).map { windows[$0 % 10][$0 / 10 % 20] }
        try apps[0].ask("activate 1000 " + order.joined(separator: " "))
        try display.run("xdotool", ["windowactivate", "--sync", windows[3][7]])
        try display.run("xdotool", ["windowactivate", "--sync", windows[5][9]])
        try display.run("xdotool", ["windowminimize", windows[0][0]])
        // So many requests at once may make a window manager return to an earlier window.
        try station.wait("the application of the active window, and no other, to be active") {
            let active = try? display.run("xdotool", ["getactivewindow"])
            let owner = windows.firstIndex {
                $0.contains(active?.trimmingCharacters(in: .newlines) ?? "")
            }
            let states = try paths.map(station.state)
            return owner != nil
                && states == paths.indices.map { $0 == owner ? "active" : "inactive" }
        }
        try station.readEdges()
        for path in paths where station.resyncs == 0 {
            let walk = station.walk(of: path).map { $0.split(separator: "→") }
            for (edge, next) in zip(walk, walk.dropFirst()) { #expect(edge.last == next.first, "\(walk)") }
        }
    }

    @Test("each daemon that starts is sent all windows", arguments: WindowManager.present)
    func daemons(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let station = try Station(withDaemon: false)
        let app = try display.app()
        let window = try app.open("Alpha")
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.startAgent(environment: display.environment)

        try station.startDaemon()
        try station.agent?.waitForLine(containing: "ReplaceWindows 1")
        let path = try station.register("org.example.Alpha", app.pid)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "background")

        try station.endDaemon(SIGKILL)
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.startDaemon()
        try station.wait(for: path, toBe: "active")

        // The end of an agent changes nothing; the next agent continues.
        station.forget()
        station.agent?.kill(SIGTERM)
        #expect(try station.agent?.waitForExit() == .exited(0))
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.startAgent(environment: display.environment)
        try station.wait(for: path, toBe: "background")
        #expect(station.walk(of: path) == ["active→inactive", "inactive→background"])
    }

    @Test("more windows than allowed do not keep the one with the focus from being reported")
    func tooMany() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try Station(configuration: "[Limits]\nWindowsPerUser=3\n")
        let (many, one) = (try display.app(), try display.app())
        let paths = try [
            station.register("org.example.Many", many.pid), station.register("org.example.One", one.pid),
        ]
        let windows = try many.ask("open-many 150 Many").split(separator: " ")
        let window = try one.open("One")
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.startAgent(environment: display.environment)
        try station.wait(for: paths[1], toBe: "active")
        try station.wait(for: paths[0], toBe: "inactive")
        // The window that has the focus is reported first.
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: paths[1], toBe: "background")
        // A window that the daemon refused has the focus: no other application keeps it.
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.wait(for: paths[1], toBe: "active")
        try display.run("xdotool", ["windowactivate", "--sync", "\(windows[140])"])
        try station.wait(for: paths[1], toBe: "inactive")
    }

    @Test("an unknown session is reported in the log, and windows are reported all the same")
    func session() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try Station()
        try station.startAgent(["--verbose", "--session", "nonsense"], environment: display.environment)
        try station.agent?.waitForLine(containing: "cannot report for session nonsense: ")
        let app = try display.app()
        let path = try station.register("org.example.Alpha", app.pid)
        let window = try app.open("Alpha")
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.wait(for: path, toBe: "active")
    }

    @Test("the agent reconnects to another bus after it lost one")
    func bus() throws {
        let display = try Display(#require(WindowManager.present.first))
        let app = try display.app()
        let window = try app.open("Alpha")
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        let (lost, found) = (try Station(), try Station())
        let path = try found.register("org.example.Alpha", app.pid)
        // The first address that answers is used: D-Bus specification, "Server Addresses".
        let addresses = "\(lost.bus.address);\(found.bus.address)"
        try lost.startAgent(
            environment: display.environment.merging(["DBUS_SYSTEM_BUS_ADDRESS": addresses]) { $1 })
        try lost.agent?.waitForLine(containing: "ReplaceWindows 1")
        lost.bus.stop()
        try found.wait(for: path, toBe: "active")
    }

    @Test("the agent ends with the X server, and its windows are gone")
    func end() throws {
        let display = try Display(#require(WindowManager.present.first), isAlone: true)
        let station = try Station()
        try station.startAgent(environment: display.environment)
        let app = try display.app()
        _ = try app.open("Alpha")
        try station.agent?.waitForLine(containing: "UpdateWindow")
        try display.end()
        #expect(try station.agent?.waitForExit() == .exited(0))
        let said = station.agent?.errors ?? ""
        #expect(
            said.contains("nothing left to watch: no X server answers at display \(display.name)"), "\(said)")
    }
}

extension SessionTests {
    @Test(
        "the command line is answered with the right status and text",
        arguments: [
            (["--version"], Int32(0), "appstate-session 0.1.0"), (["--help"], 0, "--verbose"),
            (["--nonsense"], 2, "there is no argument \"--nonsense\""),
            (["--session"], 2, "--session needs an id"),
            ([], 1, "none of SWAYSOCK, WAYLAND_DISPLAY and DISPLAY is set"),
        ])
    func words(_ arguments: [String], _ status: Int32, _ words: String) throws {
        let agent = try Child(
            try #require(Programs.built("appstate-session")), arguments,
            environment: ["DISPLAY": nil, "WAYLAND_DISPLAY": nil, "SWAYSOCK": nil])
        #expect(try agent.waitForExit() == .exited(status))
        #expect((agent.output + agent.errors).contains(words))
    }

    @Test("the error for a bus that cannot be reached names the address")
    func badAddress() throws {
        let display = try Display(#require(WindowManager.present.first))
        let agent = try Child(
            try #require(Programs.built("appstate-session")),
            environment: display.environment.merging(["DBUS_SYSTEM_BUS_ADDRESS": "nonsense"]) { $1 })
        #expect(try agent.waitForExit() == .exited(1))
        #expect(agent.errors.contains("DBUS_SYSTEM_BUS_ADDRESS=nonsense"))
    }

    @Test("a compositor that cannot be watched is not mistaken for an X server")
    func wayland() throws {
        let agent = try Child(
            try #require(Programs.built("appstate-session")),
            environment: [
                "DISPLAY": ":0", "XDG_RUNTIME_DIR": "/nonexistent", "WAYLAND_DISPLAY": "wayland-0",
                "SWAYSOCK": nil,
            ])
        #expect(try agent.waitForExit() == .exited(1))
        #expect(agent.errors.contains("nothing listens at /nonexistent/wayland-0"))
    }

    @Test(
        "an unsupported desktop has its own exit status, on which the unit does not restart",
        .enabled(if: Cage.isAvailable, Cage.whatIsMissing))
    func unsupported() throws {
        let cage = try Cage()
        let agent = try Child(
            try #require(Programs.built("appstate-session")),
            environment: ["DISPLAY": nil, "WAYLAND_DISPLAY": cage.display, "SWAYSOCK": nil])
        #expect(try agent.waitForExit() == .exited(3))
        #expect(agent.errors.contains("lacks zwlr_foreign_toplevel_manager_v1"))
        let unit = try String(
            contentsOfFile: Programs.root + "/systemd/user/appstate-session.service", encoding: .utf8)
        #expect(unit.contains("\nRestartPreventExitStatus=3\n"))
    }
}

/// The same over the IPC of sway and i3.
@Suite(
    "Session agent, sway and i3", .serialized, .enabled(if: Tiler.isAvailable, Tiler.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct TilerSessionTests {
    @Test("changes of windows reach a subscriber as the right edges", arguments: Tiler.Kind.present)
    func walks(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let station = try Station()
        try station.startAgent(environment: tiler.environment, uid: tiler.uid)
        let (alpha, beta) = (try tiler.app(), try tiler.app())
        let a = try station.register("org.example.Alpha", alpha.pid)
        let b = try station.register("org.example.Beta", beta.pid)
        _ = try alpha.open("Alpha")
        try station.wait(for: a, toBe: "active")
        _ = try beta.open("Beta")
        try station.wait(for: b, toBe: "active")
        try station.wait(for: a, toBe: "inactive")
        station.forget()

        try tiler.command("[class=Alpha] focus")
        try station.wait(forWalks: [a: ["inactive→active"], b: ["active→inactive"]], "focus")
        try tiler.command("[class=Alpha] move scratchpad")
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→active"]], "scratchpad")
        try tiler.command("scratchpad show")
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["active→inactive"]], "show")
        try tiler.command("workspace other")
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→background"]], "workspace"
        )
        try tiler.command("workspace back_and_forth")
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["background→inactive"]], "back")
        try tiler.command("[class=Alpha] kill")
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→active"]], "close")
        beta.process.kill(SIGKILL)
        #expect(try station.waitForRemoval(of: b) == "killed")

        try tiler.end()
        switch kind {
        case .sway: #expect(try station.agent?.waitForExit() == .exited(0))
        // The X server is still there, possibly for another window manager.
        case .i3: try station.agent?.waitForLine(containing: "watching X11 display \(tiler.display)")
        }
    }
}

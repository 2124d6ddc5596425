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

    @Test("ListWindows follows real windows and their titles, and Activate brings one to the front")
    func windows() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try Station()
        try station.startAgent(environment: display.environment)
        let (alpha, beta) = (try display.app(), try display.app())
        let a = try station.register("org.example.Alpha", alpha.pid)
        let b = try station.register("org.example.Beta", beta.pid)
        let first = try alpha.open("Alpha", "The first")
        try display.run("xdotool", ["windowactivate", "--sync", "\(first)"])
        let second = try beta.open("Beta", "The second")
        try display.run("xdotool", ["windowactivate", "--sync", "\(second)"])
        func wait(_ ofA: String, _ ofB: String) throws {
            try station.wait("\(ofA), \(ofB)") {
                try station.windows(of: a) == [ofA] && station.windows(of: b) == [ofB]
            }
        }
        try wait("foreground-inactive The first", "foreground-active The second")
        // Nothing else changes with the title.
        try alpha.ask("title \(first) The third")
        try wait("foreground-inactive The third", "foreground-active The second")
        try station.suspend(a)
        try wait("background The third", "foreground-active The second")
        try station.activate(a)
        try wait("foreground-active The third", "foreground-inactive The second")
        try display.run("xdotool", ["windowminimize", "\(second)"])
        try wait("foreground-active The third", "background The second")
        try display.run("wmctrl", ["-i", "-c", "\(second)"])
        try station.wait("no window") { try station.windows(of: b) == [] }
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
        try station.agent?.waitForLine(containing: "ReplaceWindows 1")
        try display.end()
        #expect(try station.agent?.waitForExit() == .exited(0))
        let said = station.agent?.errors ?? ""
        #expect(
            said.contains("nothing left to watch: no X server answers at display \(display.name)"), "\(said)")
    }
}

extension SessionTests {
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

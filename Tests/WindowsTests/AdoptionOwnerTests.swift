import AppStateBus
import AppStateContract
import Desktop
import Foundation
import Glibc
import Linux
import SessionRules
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// Which process the agent adopts for a window.
@Suite(
    "Adoption of the right process", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct AdoptionOwnerTests {
    private func start(_ display: Display, _ configuration: String) throws -> Station {
        let station = try Station()
        let file = try station.configureAgent(configuration)
        try station.startAgent(["--verbose", "--config", file], environment: display.environment)
        return station
    }

    @Test(
        "in a unit of its own, the unit's topmost process is adopted until a descendant registers itself",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func unit() throws {
        let display = try Display(#require(WindowManager.present.first))
        let id = "org.example.Unit\(getpid())"
        let unit = try TestCgroup("app-test-\(id)-1.scope", below: try #require(TestCgroup.base))
        let app = try display.app(prefix: ["sh", "-c", "\"$@\"; exit", "sh"])
        let child = try app.child()
        for pid in [app.pid, child] { try unit.take(pid) }
        let station = try start(display, "[Session]\nAdopt=org.example.*\n")
        let window = try app.open("Alpha")
        let path = try station.wait(forApplication: id, app.pid)
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.wait(for: path, toBe: "active")
        #expect(try station.applications().count == 1)

        let own = try station.register(id, child)
        #expect(try station.waitForRemoval(of: path) == "unregistered")
        try station.wait(for: own, toBe: "active")
        _ = try app.open("Another")
        try station.agent?.waitForLine(containing: "\"Another\"")
        #expect(try station.applications().map(\.pid) == [child])
    }

    @Test(
        "a main process with windows of its own stays when a descendant registers itself",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func shared() throws {
        let display = try Display(#require(WindowManager.present.first))
        let id = "org.example.Shared\(getpid())"
        let unit = try TestCgroup("app-\(id)-1.scope", below: try #require(TestCgroup.base))
        let script = """
            echo $$ >"$0"/cgroup.procs
            { echo x open Second; exec sleep 1000; } | "$@" & echo second $!
            "$@"; exit
            """
        let station = try start(display, "[Session]\nAdopt=org.example.* Marker\n")
        let app = try display.app(prefix: ["sh", "-c", script, unit.cgroup.directory])
        _ = try app.open("First")
        try station.agent?.waitForLine(containing: "\"Second\"")
        let main = try station.wait(forApplication: id, app.pid)
        let second = Int32(try app.process.waitForLine(containing: "second ").dropFirst("second ".count))
        let first = try #require(
            Proc().children(of: app.pid).first { pid in
                pid != second && (try? Proc().program(of: pid)) == "WindowActor"
            })
        _ = try station.register("org.example.First", first)
        let marker = try display.app()
        let window = try marker.open("Marker")
        _ = try station.wait(forApplication: "Marker", marker.pid)
        #expect(try station.applications().map(\.pid) == [app.pid, first, marker.pid])
        // The window manager focuses a new window, possibly late, or on a busy machine not at all.
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try station.wait(for: main, toBe: "inactive")
    }

    @Test(
        "a game in its launcher's unit is an application of its own if a rule names only the game",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func launcher() throws {
        let display = try Display(#require(WindowManager.present.first))
        let unit = try TestCgroup(
            "app-org.example.Launcher-\(getpid()).scope", below: try #require(TestCgroup.base))
        let script = """
            echo $$ >"$0"/cgroup.procs
            { echo x open Game; exec sleep 1000; } | "$@" & echo game $!
            "$@"; exit
            """
        let station = try start(
            display, "[Application *]\nReclaimable=no\n[Application game]\nReclaimable=yes\n")
        let app = try display.app(prefix: ["sh", "-c", script, unit.cgroup.directory])
        _ = try app.open("Launcher")
        let game = Int32(try app.process.waitForLine(containing: "game ").dropFirst("game ".count))
        let path = try station.wait(forApplication: "Game", try #require(game))
        let launcher = try station.wait(forApplication: "org.example.Launcher", app.pid)
        try station.wait("both rules") {
            try station.property("Reclaimable", of: path) == .bool(true)
                && station.property("Reclaimable", of: launcher) == .bool(false)
        }
        #expect(try station.applications().count == 2)
    }

    @Test(
        "what runs in a terminal is not part of the terminal, nor of its shell",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)),
        .enabled(if: Programs.inPath("script") != nil, "needs script"))
    func job() throws {
        let unit = try TestCgroup("app-test-terminal-\(getpid()).scope", below: try #require(TestCgroup.base))
        let command = #"bash -mc 'sh -c "stty -onlcr; sleep 1000 & echo pids \$\$ \$!; wait"; true'"#
        let enter = "echo $$ >\"$0\"/cgroup.procs; exec script -qfc \"$1\" /dev/null"
        let terminal = try Child("sh", ["-c", enter, unit.cgroup.directory, command])
        let pids = try terminal.waitForLine(containing: "pids ").split(whereSeparator: \.isWhitespace)
            .compactMap { Int32($0) }
        let nowhere = DesktopProcesses([])
        let found = try #require(Candidate(windowOf: pids[1], appID: "Editor", on: nowhere))
        // A script may have started the program.
        #expect(found.process.pid == pids[0] && found.lineage.map(\.pid) == [pids[1], pids[0]])
        #expect(found.id.rawValue == "Editor" && found.traits[.unit] == [])
        let own = try #require(Candidate(windowOf: terminal.pid, appID: "Terminal", on: nowhere))
        #expect(own.id.rawValue == "terminal" && own.traits[.unit].contains("terminal"))
    }

    @Test("without a unit the window's own process is adopted; invalid characters of the id become \"_\"")
    func noUnit() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try start(display, "[Session]\nAdopt=*\n")
        let app = try display.app(prefix: ["sh", "-c", "\"$@\"; exit", "sh"])
        _ = try app.open("Älpha/1")
        _ = try station.wait(forApplication: "_lpha_1", app.child())
    }

    @Test(
        "a child of an application without a unit belongs to it, in whichever order the agent finds them",
        .enabled(if: Programs.inPath("xterm") != nil, "needs xterm"))
    func family() throws {
        let display = try Display(#require(WindowManager.present.first))
        let watch = try display.watch()
        let script = "{ echo x open Child; exec sleep 1000; } | \"$0\""
        let actor = try #require(Programs.built("WindowActor"))
        let terminal = try Child(
            "xterm", ["-e", "sh", "-c", script, actor], environment: display.environment)
        try watch.wait("both windows") { $0.count == 2 }
        let entries = DesktopEntries()
        let id = entries.id(ofClass: "XTerm", program: "xterm") ?? "XTerm"
        // Matched by the class of its window, whatever its desktop entry is.
        let station = try start(display, "[Session]\nAdopt=XTerm Marker\n")
        let path = try station.wait(forApplication: id, terminal.pid)
        let marker = try display.app()
        _ = try marker.open("Marker")
        _ = try station.wait(forApplication: "Marker", marker.pid)
        #expect(try station.applications().map(\.id) == [id, "Marker"])
        let child = try watch.window("Child").number
        try display.run("xdotool", ["windowactivate", "--sync", "\(child)"])
        try station.wait(for: path, toBe: "active")
        try display.end()
        try terminal.waitForExit()
    }

    @Test(
        "the desktop's own processes, their ancestors and other users' processes are never adopted"
    )
    func desktop() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try start(display, "[Session]\nAdopt=*\n")
        let (panel, last) = (try display.app(), try display.app())
        try panel.ask("fixture DOCK Panel")
        try station.agent?.waitForLine(containing: "\"Panel\"")
        _ = try panel.open("Settings")
        let other: WindowApp? =
            Station.othersCanRun
            ? try WindowApp(environment: display.environment, uid: TestDesktop.nobody) : nil
        _ = try other?.open("Other")
        _ = try last.open("Last")
        _ = try station.wait(forApplication: "Last", last.pid)
        #expect(try station.applications().map(\.id) == ["Last"])
    }
}

/// A window that may belong to several processes.
@Suite(
    "Adoption, Wayland", .serialized, .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct WaylandAdoptionTests {
    @Test(
        "Wayland and Xwayland windows are adopted; a window whose process is uncertain is not",
        arguments: Compositor.Kind.present)
    func doubt(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let station = try Station()
        let file = try station.configureAgent("[Session]\nAdopt=*\n")
        let (first, second) = (try compositor.app("Alpha"), try compositor.app("Alpha"))
        _ = (try first.open("org.example.Alpha", "a"), try second.open("org.example.Alpha", "b"))
        try station.startAgent(
            ["--verbose", "--config", file], environment: compositor.environment, uid: compositor.uid)
        try station.agent?.waitForLine(containing: "may belong to any of the processes")
        let beta = try compositor.app("Beta")
        _ = try beta.open("org.example.Beta", "c")
        _ = try station.wait(forApplication: "org.example.Beta", beta.pid)
        #expect(try station.applications().map(\.pid) == [beta.pid])
        first.process.kill(SIGKILL)
        let path = try station.wait(forApplication: "org.example.Alpha", second.pid)
        try beta.ask("bar activate b")
        try station.wait(for: path, toBe: "active")
    }
}

import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Two sessions at once, each with an X server and an agent of its own, and one daemon.
@Suite(
    "Sessions side by side", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct SeparateSessionsTests {
    /// An X server with one application that has a window.
    private struct Desk {
        let display: Display
        let app: WindowApp
        let window: UInt32
        let path: String

        init(_ station: Station, _ id: String, uid: UInt32? = nil) throws {
            display = try Display(#require(WindowManager.present.first))
            app = try WindowApp(environment: display.environment, uid: uid)
            path = try station.register(id, app.pid)
            window = try app.open("Window")
        }

        func activate() throws { try display.run("xdotool", ["windowactivate", "--sync", "\(window)"]) }
        func minimize() throws { try display.run("xdotool", ["windowminimize", "\(window)"]) }
        /// Opens a window of somebody who is not registered, which takes the focus.
        func distract() throws -> WindowApp {
            let other = try display.app()
            let window = try other.open("Other")
            try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
            return other
        }
    }

    /// What happens at one desk leaves the other as it is: each has a focus, and an agent that goes takes nothing along.
    private func check(_ station: Station, _ first: Desk, _ second: Desk, _ other: Child) throws {
        try first.activate()
        try station.wait(for: first.path, toBe: "active")
        try second.activate()
        try station.wait(for: second.path, toBe: "active")
        // The numbers of their windows are the same.
        #expect(first.window == second.window)
        #expect(try station.state(of: first.path) == "active")
        station.forget()

        let distraction = try second.distract()
        try station.wait(forWalks: [second.path: ["active→inactive"], first.path: []], "distract")
        distraction.process.kill(SIGKILL)
        try second.activate()
        try station.wait(for: second.path, toBe: "active")
        station.forget()
        try first.minimize()
        try station.wait(
            forWalks: [first.path: ["active→inactive", "inactive→background"], second.path: []], "minimize")
        try first.activate()
        try station.wait(
            forWalks: [first.path: ["background→inactive", "inactive→active"], second.path: []], "restore")

        // The one goes, in good order; the other's windows, and its own, stay what they were.
        other.kill(SIGTERM)
        #expect(try other.waitForExit() == .exited(0))
        try first.minimize()
        try station.wait(
            forWalks: [first.path: ["active→inactive", "inactive→background"], second.path: []], "alone")
        #expect(try station.state(of: second.path) == "active")
        try first.activate()
        try station.wait(
            forWalks: [first.path: ["background→inactive", "inactive→active"], second.path: []], "alone")
        // With its display server it ends, and takes only its own with it.
        try first.display.end()
        #expect(try station.agent?.waitForExit() == .exited(0))
        #expect(try station.state(of: second.path) == "active")
    }

    @Test(
        "two users: neither takes the focus, or a window, from the other",
        .enabled(if: Station.othersCanRun, Station.whatOthersNeed))
    func users() throws {
        let station = try Station()
        let first = try Desk(station, "org.example.First")
        let second = try Desk(station, "org.example.Second", uid: TestDesktop.nobody)
        try station.startAgent(environment: first.display.environment)
        let other = try station.startAnotherAgent(
            environment: second.display.environment, uid: TestDesktop.nobody)
        try check(station, first, second, other)
    }

    @Test(
        "one user's two sessions: neither takes the focus, or a window, from the other",
        .enabled(if: Station.canHaveSessions, Station.whatSessionsNeed))
    func sessions() throws {
        let station = try Station(sessions: ["c1": getuid(), "c2": getuid()])
        let (first, second) = (
            try Desk(station, "org.example.First"), try Desk(station, "org.example.Second")
        )
        try station.startAgent(
            ["--verbose", "--session", "c1"], environment: first.display.environment)
        let other = try station.startAnotherAgent(
            ["--verbose", "--session", "c2"], environment: second.display.environment)
        try check(station, first, second, other)
    }

    @Test(
        "each session's agent adopts by its own configuration, and only its own user's",
        .enabled(if: Station.othersCanRun, Station.whatOthersNeed))
    func adoption() throws {
        let station = try Station()
        let displays = try (0..<2).map { _ in try Display(#require(WindowManager.present.first)) }
        let file = try station.configureAgent("[Session]\nAdopt=*\n")
        let arguments = ["--verbose", "--config", file]
        try station.startAgent(arguments, environment: displays[0].environment)
        let other = try station.startAnotherAgent(
            arguments, environment: displays[1].environment, uid: TestDesktop.nobody)
        // Of one program, with the same name, on both displays; on the first, one of the other user's too.
        let own = try displays[0].app()
        let stranger = try WindowApp(environment: displays[0].environment, uid: TestDesktop.nobody)
        let others = try WindowApp(environment: displays[1].environment, uid: TestDesktop.nobody)
        for app in [stranger, own, others] { _ = try app.open("Alpha") }
        let paths = try [own, others].map { try station.wait(forApplication: "Alpha", $0.pid) }
        #expect(try station.property("UID", of: paths[0]) == .uint32(getuid()))
        #expect(try station.property("UID", of: paths[1]) == .uint32(TestDesktop.nobody))
        #expect(try station.applications().count == 2)
        other.kill(SIGKILL)
        try other.waitForExit()
        #expect(try station.applications().count == 2)
    }
}

/// One session with more than one window system.
@Suite(
    "Two window systems in one session", .serialized,
    .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct TwoSystemsTests {
    @Test(
        "Wayland's and Xwayland's windows are told of by one agent, as one set with one focus",
        arguments: Compositor.Kind.present)
    func agent(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let station = try Station()
        try station.startAgent(environment: compositor.environment, uid: compositor.uid)
        let (wayland, x11) = (try compositor.app("Alpha"), try compositor.x11App())
        let a = try station.register("org.example.Alpha", wayland.pid)
        let b = try station.register("org.example.Beta", x11.pid)
        _ = try wayland.open("org.example.Alpha", "first")
        try station.wait(for: a, toBe: "active")
        _ = try x11.open("WindowActor", "second")
        try station.wait(for: b, toBe: "active")
        try station.wait(for: a, toBe: "inactive")
        station.forget()
        try wayland.ask("bar activate first")
        try station.wait(forWalks: [a: ["inactive→active"], b: ["active→inactive"]], "to Wayland")
        try wayland.ask("bar activate second")
        try station.wait(forWalks: [a: ["active→inactive"], b: ["inactive→active"]], "to X11")
        x11.process.kill(SIGKILL)
        #expect(try station.waitForRemoval(of: b) == "killed")
        try station.wait(for: a, toBe: "active")
    }
}

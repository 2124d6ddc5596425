import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Two sessions at once, each with its own X server and agent, and one daemon.
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
            display = try Display(#require(WindowManager.present.first), isAlone: true)
            app = try WindowApp(environment: display.environment, uid: uid)
            path = try station.register(id, app.pid)
            window = try app.open("Window")
        }

        func activate() throws { try display.run("xdotool", ["windowactivate", "--sync", "\(window)"]) }
        func minimize() throws { try display.run("xdotool", ["windowminimize", "\(window)"]) }
        /// Opens a window of an unregistered process, which takes the focus.
        func distract() throws -> WindowApp {
            let other = try display.app()
            let window = try other.open("Other")
            try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
            return other
        }
    }

    /// Events at one desk do not affect the other: each has a focus, and the end of an agent affects only its own
    /// windows.
    private func check(_ station: Station, _ first: Desk, _ second: Desk, _ other: Child) throws {
        try first.activate()
        try station.wait(for: first.path, toBe: "active")
        try second.activate()
        try station.wait(for: second.path, toBe: "active")
        // Their windows have the same numbers.
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

        // One agent ends in an orderly way. The windows of the other desk, and its own, stay as they were.
        other.kill(SIGTERM)
        #expect(try other.waitForExit() == .exited(0))
        try first.minimize()
        try station.wait(
            forWalks: [first.path: ["active→inactive", "inactive→background"], second.path: []], "alone")
        #expect(try station.state(of: second.path) == "active")
        try first.activate()
        try station.wait(
            forWalks: [first.path: ["background→inactive", "inactive→active"], second.path: []], "alone")
        // When its display server ends, the agent ends and removes only its own windows.
        try first.display.end()
        #expect(try station.agent?.waitForExit() == .exited(0))
        #expect(try station.state(of: second.path) == "active")
    }

    @Test(
        "two users' sessions do not take the focus or a window from each other",
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
        "two sessions of one user do not take the focus or a window from each other",
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
        "each session's agent adopts by its own configuration, and only processes of its own user",
        .enabled(if: Station.othersCanRun, Station.whatOthersNeed))
    func adoption() throws {
        let station = try Station()
        let displays = try (0..<2).map { _ in try Display(#require(WindowManager.present.first)) }
        let file = try station.configureAgent("[Session]\nAdopt=*\n")
        let arguments = ["--verbose", "--config", file]
        try station.startAgent(arguments, environment: displays[0].environment)
        let other = try station.startAnotherAgent(
            arguments, environment: displays[1].environment, uid: TestDesktop.nobody)
        // The same program with the same name on both displays; on the first display also one of the other user.
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
        "one agent reports Wayland and Xwayland windows as one set with one focus",
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

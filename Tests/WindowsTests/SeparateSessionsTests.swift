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

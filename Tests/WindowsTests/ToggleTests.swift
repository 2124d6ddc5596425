import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// A key that suspends the application in front, on real desktops: appstatectl asks, the daemon suspends, the agent
/// minimizes.
@Suite(
    "Toggle, in the session", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct ToggleTests {
    private static let suspended = "is suspended until this is repeated, or it gets the focus again\n"

    /// An application that has the focus.
    private struct Front {
        let display: Display
        let station: Station
        let app: WindowApp
        let window: UInt32
        let path: String

        init(_ manager: WindowManager) throws {
            display = try Display(manager)
            station = try Station()
            try station.startAgent(environment: display.environment)
            app = try display.app()
            path = try station.register("org.example.Alpha", app.pid)
            window = try app.open("Alpha")
            try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
            try station.wait(for: path, toBe: "active")
        }
    }

    private func toggle(_ station: Station, _ arguments: [String] = []) throws -> Child {
        let program = try #require(Programs.built("appstatectl"))
        let child = try Child(
            program, ["toggle", "--focused"] + arguments, environment: station.bus.environment)
        _ = try child.waitForExit()
        return child
    }

    @Test(
        "the application in front is suspended and minimized, and resumed when it gets the focus back",
        arguments: WindowManager.present)
    func minimized(_ manager: WindowManager) throws {
        let front = try Front(manager)
        let (display, station, window, path) = (front.display, front.station, front.window, front.path)

        let key = try toggle(station, ["--minimize"])
        #expect(key.output == "org.example.Alpha \(Self.suspended)", "\(key.errors)")
        try station.wait(for: path, toBe: "suspended")
        try station.wait("it is minimized") {
            try station.property("Minimized", of: path) == .bool(true)
        }
        #expect(try station.state(of: path) == "suspended")
        // No application is in front now.
        let again = try toggle(station)
        #expect(again.errors.contains("No registered application has the focus"), "\(again.output)")

        try display.run("xdotool", ["windowactivate", "\(window)"])
        try station.wait(for: path, toBe: "active")
        #expect(try station.property("SuspendHolds", of: path) == .array("(ss)", []))
    }

    @Test("an application that stays in front is resumed by the same key")
    func stays() throws {
        let front = try Front(#require(WindowManager.present.first))
        let (station, path) = (front.station, front.path)
        for _ in 0..<3 {
            #expect(try toggle(station).output.hasSuffix(Self.suspended))
            try station.wait(for: path, toBe: "suspended")
            #expect(try toggle(station).output == "org.example.Alpha runs\n")
            try station.wait(for: path, toBe: "active")
        }
    }
}

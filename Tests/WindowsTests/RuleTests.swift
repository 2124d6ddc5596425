import AppStateBus
import Glibc
import TestSupport
import Testing

@testable import appstate_session

/// The user's rules, from their file to what becomes of real windows.
@Suite(
    "Rules, in the session", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct RuleTests {
    private static let automatic = "[Application ALPHA]\nSuspension=automatic\nBackgroundGraceSec=0\n"

    private func start(_ configuration: String) throws -> (display: Display, station: Station) {
        let display = try Display(#require(WindowManager.present.first))
        let station = try Station(configuration: "BackgroundGraceSec=1h\n")
        let file = try station.configureAgent(configuration)
        try station.startAgent(["--verbose", "--config", file], environment: display.environment)
        return (display, station)
    }

    @Test(
        "a rule makes an application of what it is about, and has it suspended; without it that ends at once")
    func adopts() throws {
        let (display, station) = try start(Self.automatic)
        let alpha = try display.app()
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "suspended")
        #expect(try station.explain(path, "rule") == .string("ALPHA"))
        // Another word, and it runs. Nobody tells the agent to look.
        try station.configureAgent(Self.automatic + "[Application Al*]\nSuspension=never\n")
        try station.wait(for: path, toBe: "background")
        try station.wait("the rules") { try station.explain(path, "rule") == .string("ALPHA, Al*") }
        try station.configureAgent("")
        #expect(try station.waitForRemoval(of: path) == "unregistered")
    }

    @Test("it goes before what an application says that registered itself, and the next daemon is told")
    func others() throws {
        let (display, station) = try start(Self.automatic)
        let alpha = try display.app()
        let path = try station.register("org.example.Writer", alpha.pid, suspension: "never")
        let window = try alpha.open("Alpha")
        try station.wait("the rule") { try station.explain(path, "rule") == .string("ALPHA") }
        #expect(try station.property("Suspension", of: path) == .string("automatic"))
        try station.endDaemon(SIGKILL)
        try station.startDaemon()
        try station.wait("the rule") { try station.explain(path, "rule") == .string("ALPHA") }
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "suspended")
        try station.reloadAgent("")
        try station.wait(for: path, toBe: "background")
        #expect(try station.property("Suspension", of: path) == .string("never"))
    }
}

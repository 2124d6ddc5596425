import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

@testable import appstate_session

/// The user's rules, from their file to their effect on real windows.
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
        "a rule makes a process an application and gets it suspended; without the rule both end at once")
    func adopts() throws {
        let (display, station) = try start(Self.automatic)
        let alpha = try display.app()
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "suspended")
        #expect(try station.explain(path, "rule") == .string("ALPHA"))
        // Another setting, and it is resumed, without a signal to the agent.
        try station.configureAgent(Self.automatic + "[Application Al*]\nSuspension=never\n")
        try station.wait(for: path, toBe: "background")
        try station.wait("the rules") { try station.explain(path, "rule") == .string("ALPHA, Al*") }
        try station.configureAgent("")
        #expect(try station.waitForRemoval(of: path) == "unregistered")
    }

    @Test("ExecSuspend= runs first; if it fails the application keeps running, and Explain reports it")
    func commands() throws {
        let (display, station) = try start("")
        let log = station.bus.directory + "/commands"
        func configure(_ line: String) throws {
            try station.configureAgent(
                Self.automatic
                    + "KeepWhile=none\nExecSuspend=\(line)\nExecResume=echo $APPSTATED_ID >> \(log)\n")
        }
        try configure("false")
        // A copy of the program: a start of the original by another test would resume the application, too.
        let program = station.bus.directory + "/WindowActor"
        try Programs.copy(#require(Programs.built("WindowActor")), to: program)
        let alpha = try WindowApp(environment: display.environment, program: program)
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        try station.wait("the objection") {
            try station.objections(to: path).contains("reported command")
        }
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "background")
        #expect(try station.explain(path, "objections") == .strings(["reported command"]))
        try configure("true")
        try station.wait(for: path, toBe: "suspended")
        try display.run("xdotool", ["windowmap", "\(window)"])
        // On a busy machine the agent may have resumed the application before, for a grab of the X server.
        try station.wait("the command") {
            (try? String(contentsOfFile: log, encoding: .utf8))?.hasPrefix("Alpha\n") == true
        }
    }

    @Test(
        "SuspendWhen=inactive suspends a visible application behind another window; the focus resumes it"
    )
    func inSight() throws {
        let (display, station) = try start(Self.automatic + "SuspendWhen=inactive\n")
        let alpha = try display.app()
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        let beta = try display.app()
        let other = try beta.open("Beta")
        // The window manager focuses a new window, possibly late, or on a busy machine not at all.
        try display.run("xdotool", ["windowactivate", "--sync", "\(other)"])
        try station.wait(for: path, toBe: "suspended")
        #expect(try station.explain(path, "rule") == .string("ALPHA"))
        try display.run("xdotool", ["windowactivate", "\(window)"])
        try station.wait(for: path, toBe: "active")
    }

    /// A minimal UPower.
    private final class PowerStandIn {
        private let bus: Bus
        private var slot: Slot?
        private var onBattery = true
        private static let name = "org.freedesktop.UPower"
        static let policy =
            "<policy user=\"\(getuid())\"><allow own=\"\(name)\"/></policy>"
            + "<policy context=\"default\"><allow send_destination=\"\(name)\"/></policy>"

        init(_ station: Station) throws {
            bus = try Bus.open(address: station.bus.address)
            try bus.attach(to: station.loop)
            slot = try bus.add(
                Interface(
                    Self.name,
                    properties: [
                        Property("OnBattery", "b", emits: .change) { [unowned self] message, _ in
                            try message.append(onBattery)
                        }
                    ]), at: "/org/freedesktop/UPower")
            try bus.requestName(Self.name)
        }

        func leave() throws { try bus.releaseName(Self.name) }

        func change(to onBattery: Bool) throws {
            self.onBattery = onBattery
            let signal = try bus.newSignal(
                path: "/org/freedesktop/UPower", interface: "org.freedesktop.DBus.Properties",
                member: "PropertiesChanged")
            try signal.append(Self.name)
            try signal.appendDictionary([("OnBattery", .bool(onBattery))])
            try signal.append(strings: [])
            try bus.send(signal)
        }
    }

    @Test("a battery rule counts on battery only, but its application is registered on mains too")
    func battery() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try Station(policy: PowerStandIn.policy)
        let file = try station.configureAgent(Self.automatic + "OnBattery=yes\n")
        try station.startAgent(["--verbose", "--config", file], environment: display.environment)
        let alpha = try display.app()
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "background")
        #expect(try station.explain(path, "rule") == nil)
        let power = try PowerStandIn(station)
        try station.wait(for: path, toBe: "suspended")
        #expect(try station.explain(path, "rule") == .string("ALPHA"))
        try power.change(to: false)
        try station.wait(for: path, toBe: "background")
        try power.change(to: true)
        try station.wait(for: path, toBe: "suspended")
        // Without UPower the machine is on mains.
        try power.leave()
        try station.wait(for: path, toBe: "background")
    }

    @Test("a rule with a title counts while a window of the application has such a title")
    func title() throws {
        let (display, station) = try start(Self.automatic + "Title=*draft*\n")
        let alpha = try display.app()
        let window = try alpha.open("Alpha", "Letter")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "background")
        #expect(try station.explain(path, "rule") == nil)
        try alpha.ask("title \(window) A DRAFT letter")
        try station.wait(for: path, toBe: "suspended")
        #expect(try station.explain(path, "rule") == .string("ALPHA"))
        // The application is stopped, so somebody else changes it.
        try display.run("xdotool", ["set_window", "--name", "Letter", "\(window)"])
        try station.wait(for: path, toBe: "background")
    }

    @Test("a rule overrides the application's own registration and is sent to the next daemon")
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

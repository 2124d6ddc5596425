import AppStateBus
import Foundation
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

    @Test("ExecSuspend= is run first; one that fails keeps the application running, and Explain says so")
    func commands() throws {
        let (display, station) = try start("")
        let log = station.bus.directory + "/commands"
        func configure(_ line: String) throws {
            try station.configureAgent(
                Self.automatic
                    + "KeepWhile=none\nExecSuspend=\(line)\nExecResume=echo $APPSTATED_ID >> \(log)\n")
        }
        try configure("false")
        let alpha = try display.app()
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        try station.wait("the exemption") {
            try station.explain(path, "exemptions") == .strings(["reported command"])
        }
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: path, toBe: "background")
        #expect(try station.explain(path, "exemptions") == .strings(["reported command"]))
        try configure("true")
        try station.wait(for: path, toBe: "suspended")
        try display.run("xdotool", ["windowmap", "\(window)"])
        try station.wait("the command") { (try? String(contentsOfFile: log, encoding: .utf8)) == "Alpha\n" }
    }

    @Test(
        "SuspendWhen=inactive: it is suspended in sight, behind another window, and runs when it has the focus"
    )
    func inSight() throws {
        let (display, station) = try start(Self.automatic + "SuspendWhen=inactive\n")
        let alpha = try display.app()
        let window = try alpha.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        let beta = try display.app()
        _ = try beta.open("Beta")
        try station.wait(for: path, toBe: "suspended")
        #expect(try station.explain(path, "rule") == .string("ALPHA"))
        try display.run("xdotool", ["windowactivate", "\(window)"])
        try station.wait(for: path, toBe: "active")
    }

    /// A small UPower.
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

    @Test("a rule for the battery counts on battery only; what it is about is registered all the same")
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

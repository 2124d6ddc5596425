import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import appstate_session

/// Windows of unregistered processes, on a real X server, with the real agent and the real daemon.
@Suite(
    "Adoption", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct AdoptionTests {
    /// A display, a daemon, and an agent with a configuration.
    private final class Scene {
        let display: Display
        let station: Station

        init(_ configuration: String, station: Station? = nil, address: String? = nil) throws {
            display = try Display(#require(WindowManager.present.first))
            self.station = try station ?? Station()
            try startAgent(configuration, address: address)
        }

        func startAgent(_ configuration: String, address: String? = nil) throws {
            let file = try station.configureAgent(configuration)
            var environment = display.environment
            if let address { environment["DBUS_SYSTEM_BUS_ADDRESS"] = address }
            try station.startAgent(["--verbose", "--config", file], environment: environment)
        }

        /// Waits until the agent has looked at all present windows, by having it adopt one more.
        func settle() throws {
            let marker = try display.app()
            _ = try marker.open("Marker")
            _ = try station.wait(forApplication: "Marker", marker.pid)
            marker.process.kill(SIGKILL)
            try marker.process.waitForExit()
            try station.wait("the end of the marker") { try !self.ids().contains("Marker") }
        }

        func ids() throws -> [String] { try station.applications().map(\.id).sorted() }

        func activate(_ window: UInt32) throws {
            try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        }
    }

    @Test(
        "nothing is adopted without a configuration; additions and removals apply at once"
    )
    func reload() throws {
        let scene = try Scene("")
        let (alpha, beta) = (try scene.display.app(), try scene.display.app())
        _ = (try alpha.open("Alpha"), try beta.open("Beta"))
        try scene.station.agent?.waitForLine(containing: "\"Beta\"")
        #expect(try scene.ids() == [])

        try scene.station.reloadAgent("[Session]\nAdopt=* !Beta\nAdoptSuspension=automatic\nAdapt=x\n")
        let path = try scene.station.wait(forApplication: "Alpha", alpha.pid)
        #expect(try scene.station.property("Suspension", of: path) == .string("automatic"))
        try scene.station.agent?.waitForLine(containing: "session.conf:4: Adapt=: no such key in [Session]")
        try scene.settle()
        #expect(try scene.ids() == ["Alpha"])

        try scene.station.reloadAgent("[Session]\nAdopt=* !Alpha\nAdoptSuspension=never\n")
        #expect(try scene.station.waitForRemoval(of: path) == "unregistered")
        let other = try scene.station.wait(forApplication: "Beta", beta.pid)
        #expect(try scene.station.property("Suspension", of: other) == .string("never"))
        try scene.station.reloadAgent("[Session]\nAdopt=*\n")
        _ = try scene.station.wait(forApplication: "Alpha", alpha.pid)
        #expect(try scene.ids() == ["Alpha", "Beta"])
    }

    @Test(
        "an adopted application is suspended after its grace period and resumed by the focus"
    )
    func automatic() throws {
        let station = try Station(configuration: "BackgroundGraceSec=100ms\n")
        let scene = try Scene("[Session]\nAdopt=*\nAdoptSuspension=automatic\n", station: station)
        let (alpha, beta) = (try scene.display.app(), try scene.display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        let path = try station.wait(forApplication: "Alpha", alpha.pid)
        let other = try station.wait(forApplication: "Beta", beta.pid)
        try scene.activate(second)
        try station.wait(for: other, toBe: "active")
        try station.wait(for: path, toBe: "inactive")
        try scene.display.run("xdotool", ["windowminimize", "\(first)"])
        try station.wait(for: path, toBe: "suspended")
        // Other tests start the same program: it is then needed for a moment.
        try station.wait("the process to be stopped") { try Proc().stat(alpha.pid).state == .stopped }
        try scene.activate(first)
        try station.wait(for: path, toBe: "active")
        #expect(try Proc().stat(alpha.pid).state != .stopped)
    }

    @Test("a registered process is not adopted, and a descendant's window does not start an application")
    func once() throws {
        let scene = try Scene("[Session]\nAdopt=*\n")
        let alpha = try scene.display.app()
        let path = try scene.station.register("org.example.Own", alpha.pid)
        let beta = try scene.display.app(prefix: ["sh", "-c", "\"$@\"; exit", "sh"])
        let shell = try scene.station.register("org.example.Shell", beta.pid)
        let window = try alpha.open("Alpha")
        let other = try beta.open("Beta")
        try scene.settle()
        #expect(try scene.ids() == ["org.example.Own", "org.example.Shell"])
        try scene.activate(window)
        try scene.station.wait(for: path, toBe: "active")
        try scene.activate(other)
        try scene.station.wait(for: shell, toBe: "active")

        // A registration after the adoption replaces what was only mirrored.
        let gamma = try scene.display.app()
        _ = try gamma.open("Gamma")
        let adopted = try scene.station.wait(forApplication: "Gamma", gamma.pid)
        let registered = try scene.station.register("org.example.Gamma", gamma.pid)
        let answer = try scene.station.call(BusNames.manager, "GetApplicationByPID") { message in
            try message.append(UInt32(gamma.pid))
        }
        #expect(try answer.readObjectPath() == registered && registered != adopted)
    }

    @Test("an application that another process unregisters is not adopted again until the agent reloads")
    func unregistered() throws {
        let scene = try Scene("[Session]\nAdopt=*\n")
        let alpha = try scene.display.app()
        _ = try alpha.open("Alpha")
        let path = try scene.station.wait(forApplication: "Alpha", alpha.pid)
        try scene.station.unregister(path)
        #expect(try scene.station.waitForRemoval(of: path) == "unregistered")
        _ = try alpha.open("Another")
        try scene.settle()
        #expect(try scene.ids() == [])
        try scene.station.reloadAgent("[Session]\nAdopt=*\n")
        try scene.station.wait("it to be adopted again") { try scene.station.applications().count == 1 }
    }

    @Test("adopted applications survive the end of the agent and of the daemon")
    func generations() throws {
        let scene = try Scene("[Session]\nAdopt=*\n")
        let alpha = try scene.display.app()
        let window = try alpha.open("Alpha")
        let path = try scene.station.wait(forApplication: "Alpha", alpha.pid)
        scene.station.agent?.kill(SIGTERM)
        #expect(try scene.station.agent?.waitForExit() == .exited(0))
        #expect(try scene.ids() == ["Alpha"])
        try scene.startAgent("[Session]\nAdopt=*\n")
        try scene.settle()
        #expect(try scene.station.wait(forApplication: "Alpha", alpha.pid) == path)

        try scene.station.endDaemon(SIGKILL)
        try scene.station.startDaemon()
        #expect(try scene.station.wait(forApplication: "Alpha", alpha.pid) == path)
        try scene.settle()
        #expect(try scene.ids() == ["Alpha"])
        try scene.activate(window)
        try scene.station.wait(for: path, toBe: "active")
    }
}

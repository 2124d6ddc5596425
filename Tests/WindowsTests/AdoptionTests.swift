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

    @Test("a process whose window matches becomes an application and changes state like any other")
    func adopts() throws {
        let scene = try Scene("[Session]\nAdopt=Al* Marker\n")
        let (alpha, beta) = (try scene.display.app(), try scene.display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        let path = try scene.station.wait(forApplication: "Alpha", alpha.pid)
        try scene.activate(first)
        try scene.station.wait(for: path, toBe: "active")
        try scene.settle()
        try scene.activate(first)
        try scene.station.wait(for: path, toBe: "active")
        #expect(try scene.ids() == ["Alpha"])
        #expect(try scene.station.property("Suspension", of: path) == .string("manual"))
        #expect(try scene.station.property("Reclaimable", of: path) == .bool(false))

        scene.station.forget()
        try scene.activate(second)
        try scene.station.wait(forWalks: [path: ["active→inactive"]], "focus")
        try scene.activate(first)
        try scene.station.wait(forWalks: [path: ["inactive→active"]], "focus again")
        try scene.display.run("xdotool", ["windowminimize", "\(first)"])
        try scene.station.wait(forWalks: [path: ["active→inactive", "inactive→background"]], "minimize")
        // Without a window its state does not change until it ends.
        try alpha.ask("close \(first)")
        try scene.settle()
        #expect(try scene.ids() == ["Alpha"])
        alpha.process.kill(SIGKILL)
        #expect(try scene.station.waitForRemoval(of: path) == "killed")
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

        // A registration after the adoption is refused; the caller can look the application up.
        let gamma = try scene.display.app()
        _ = try gamma.open("Gamma")
        let adopted = try scene.station.wait(forApplication: "Gamma", gamma.pid)
        do {
            _ = try scene.station.register("org.example.Gamma", gamma.pid)
            Issue.record("the process could be registered twice")
        } catch let failure as BusFailure {
            #expect(failure.name == ErrorName.alreadyRegistered.rawValue)
        }
        let answer = try scene.station.call(BusNames.manager, "GetApplicationByPID") { message in
            try message.append(UInt32(gamma.pid))
        }
        #expect(try answer.readObjectPath() == adopted)
    }

    @Test(
        "an adopted process that registers itself is neither released nor adopted again",
        arguments: ["Alpha", "org.example.Own"])
    func ownRegistration(_ id: String) throws {
        let scene = try Scene("[Session]\nAdopt=*\n")
        let station = scene.station
        let alpha = try scene.display.app(on: station.bus.environment)
        let window = try alpha.open("Alpha")
        let adopted = try station.wait(forApplication: "Alpha", alpha.pid)
        try scene.settle()
        try scene.activate(window)
        try station.wait(for: adopted, toBe: "active")

        let path = try alpha.ask("register \(id)")
        #expect(try station.waitForRemoval(of: adopted) == "unregistered")
        #expect(try station.state(of: path) == "not-running")
        try alpha.ask("launched")
        try station.wait(for: path, toBe: "active")
        #expect(try station.property("Suspension", of: path) == .string("automatic"))
        #expect(try station.property("Reclaimable", of: path) == .bool(true))
        _ = try alpha.open("Another")
        try scene.settle()
        try station.reloadAgent("[Session]\nAdopt=Marker\n")
        try scene.settle()
        #expect(
            try station.applications() == [Station.Registered(path: path, id: id, pid: alpha.pid)])

        // An application that unregisters itself is not adopted again.
        try station.reloadAgent("[Session]\nAdopt=*\n")
        try alpha.ask("unregister")
        #expect(try station.waitForRemoval(of: path) == "unregistered")
        _ = try alpha.open("Third")
        try scene.settle()
        #expect(try scene.ids() == [])
    }

    @Test("a process that had registered itself is adopted by a daemon that has no record of it")
    func forgotten() throws {
        let scene = try Scene("[Session]\nAdopt=*\n")
        let station = scene.station
        let alpha = try scene.display.app(on: station.bus.environment)
        _ = try alpha.open("Alpha")
        let adopted = try station.wait(forApplication: "Alpha", alpha.pid)
        _ = try alpha.ask("register org.example.Own")
        #expect(try station.waitForRemoval(of: adopted) == "unregistered")
        try scene.settle()
        try station.endDaemon(SIGKILL)
        try FileManager.default.removeItem(atPath: station.bus.directory + "/run")
        try station.startDaemon()
        _ = try station.wait(forApplication: "Alpha", alpha.pid)
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

    @Test(
        "a registration that completes after the configuration stopped matching is released"
    )
    func takenLate() throws {
        let scene = try Scene("[Session]\nAdopt=*\n")
        try scene.settle()
        let daemon = try #require(scene.station.daemon)
        daemon.kill(SIGSTOP)
        let alpha = try scene.display.app()
        try scene.station.waitForCall(of: "RegisterProcess") { _ = try alpha.open("Alpha") }
        try scene.station.reloadAgent("")
        daemon.kill(SIGCONT)
        #expect(try scene.station.waitForRemoval(ofID: "Alpha") == "unregistered")
        #expect(try scene.ids() == [])
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

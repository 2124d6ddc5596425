import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// A release by one holder never undoes another's hold.
@Suite("Holds of several users", .enabled(if: App.canBeOthers, App.whatOthersNeed))
struct HoldTests {
    /// An application of the user nobody, and two users that may suspend it: nobody and root.
    private struct Scene {
        let daemon: TestDaemon
        let root: Client
        let nobody: App
        let app: App
        let path: String

        init() throws {
            daemon = try TestDaemon()
            root = try daemon.subscriber()
            nobody = try App(daemon.bus, uid: App.nobody)
            app = try App(daemon.bus, uid: App.nobody)
            path = try app.register()
            try app.application(path, "FinishLaunching")
        }
    }

    @Test("the owner's Resume does not lift root's request")
    func ownerResumes() throws {
        let scene = try Scene()
        try scene.root.application(scene.path, "Suspend")
        try scene.nobody.application(scene.path, "Suspend")
        #expect(
            try scene.root.holds(scene.path) == ["request uid:0", "request uid:\(App.nobody)"])
        try scene.nobody.application(scene.path, "Resume")
        #expect(try scene.root.state(scene.path) == "suspended")
        #expect(try isStopped(scene.app.pid))
        #expect(try scene.root.holds(scene.path) == ["request uid:0"])
        try scene.root.application(scene.path, "Resume")
        #expect(try scene.root.state(scene.path) == "inactive")
    }

    @Test("root's Resume does not lift the owner's request")
    func rootResumes() throws {
        let scene = try Scene()
        try scene.nobody.application(scene.path, "Suspend")
        try scene.root.application(scene.path, "Suspend")
        try scene.root.application(scene.path, "Resume")
        #expect(try scene.root.state(scene.path) == "suspended")
        #expect(try scene.root.holds(scene.path) == ["request uid:\(App.nobody)"])
        try scene.nobody.application(scene.path, "Resume")
        #expect(try scene.root.state(scene.path) == "inactive")
        #expect(try !isStopped(scene.app.pid))
    }

    @Test("while another's request remains, Resume removes a foreign stop's hold but does not continue it")
    func foreignStopUnderRequest() throws {
        let scene = try Scene()
        scene.app.process.kill(SIGSTOP)
        try scene.root.wait(for: scene.path, toBe: "suspended")
        try scene.root.application(scene.path, "Suspend")
        scene.root.forget()
        try scene.nobody.application(scene.path, "Resume")
        try scene.root.settle()
        #expect(scene.root.edges(of: scene.path) == [])
        #expect(try isStopped(scene.app.pid))
        #expect(try scene.root.holds(scene.path) == ["request uid:0"])
        try scene.root.application(scene.path, "Resume")
        #expect(try !isStopped(scene.app.pid))
        #expect(try scene.root.state(scene.path) == "inactive")
    }

    @Test("a request outlasts the connection that made it")
    func connectionLeaves() throws {
        let scene = try Scene()
        let name = try scene.nobody.ask("name")
        try scene.nobody.application(scene.path, "Suspend")
        try scene.root.waitForDeparture(of: name) { scene.nobody.tell("exit 0") }
        try scene.root.wait("its suspension") { try scene.root.state(scene.path) == "suspended" }
        #expect(try scene.root.holds(scene.path) == ["request uid:\(App.nobody)"])
    }
}

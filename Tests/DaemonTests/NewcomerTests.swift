import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// What a process has of an application that it belonged to is not its own.
@Suite(
    "Newcomers' own resources", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)),
    .enabled(if: Capabilities.has(.sysNice), "needs CAP_SYS_NICE: a nice value is put back by lowering it"))
struct NewcomerTests {
    private let daemon: TestDaemon
    private let client: Client
    private let family: Family
    private let own: Int32
    private let path: String

    init() throws {
        daemon = try TestDaemon(
            configuration: "[State background]\nNice=7\nOOMScoreAdjust=\nIOSchedulingClass=\n")
        client = try daemon.subscriber()
        let family = try Family()
        self.family = family
        own = try Niceness.read(family.pid)
        let given = own + 7
        path = try client.register("org.example.Large", family.pid)
        try client.wait(for: path, toBe: "background")
        try family.wait("the resources") { family.count(nice: given) == family.all.count }
    }

    /// What is told of an application's resources, once there is something.
    private func given(_ path: String) throws -> [String] {
        var given: [String] = []
        try family.wait("what it is given") {
            if case .strings(let rows)? = try client.explain(path)["resources"] { given = rows }
            return !given.isEmpty
        }
        return given
    }

    @Test("a child of a large application that becomes one itself begins with its own")
    func child() throws {
        let child = family.all[200].pid
        let inner = try client.register("org.example.Inner", child)
        #expect(try given(inner) == ["Nice=\(own + 7), was \(own) (1 thread)"])
        try client.setFocus(child)
        try client.wait(for: inner, toBe: "active")
        try client.settle()
        #expect(try Niceness.read(child) == own)
        #expect(family.count(nice: own + 7) == family.all.count - 1)
    }

    @Test("children that become applications while a large one is being looked at")
    func children() throws {
        // Minimized and shown again: there is always a look under way.
        try client.setFocus(family.pid)
        let chosen = stride(from: 10, to: 400, by: 60).map { family.all[$0].pid }
        let inner = try chosen.map { child in
            try client.setFocus(0)
            try client.setMinimized(family.pid, true)
            let path = try client.register("org.example.Inner", child)
            try client.setMinimized(family.pid, false)
            return path
        }
        for path in inner { #expect(try given(path) == ["Nice=\(own + 7), was \(own) (1 thread)"]) }
    }

    @Test("so does a child that was born since its maker was last looked at")
    func newborn() throws {
        let app = try App(daemon.bus)
        let maker = try app.register("org.example.Actor", "suspension=s:manual,launch-mode=s:background")
        try app.application(maker, "FinishLaunching")
        #expect(try given(maker).first?.hasPrefix("Nice=\(own + 7), was \(own) ") == true)
        let child = try app.make("fork")
        #expect(try Niceness.read(child) == own + 7)
        let path = try client.register("org.example.Inner", child)
        #expect(try given(path) == ["Nice=\(own + 7), was \(own) (1 thread)"])
        #expect(try Niceness.read(child) == own + 7)
        try client.application(path, "Unregister")
        try family.wait("its own") { try Niceness.read(child) == own }
    }

    @Test("an application that is unregistered and registered again begins with its own")
    func again() throws {
        try client.application(path, "Unregister")
        let next = try client.register("org.example.Large", family.pid)
        #expect(try given(next) == ["Nice=\(own + 7), was \(own) (\(family.all.count) threads)"])
        try client.application(next, "Unregister")
        try family.wait("the end of it") { family.count(nice: own) == family.all.count }
    }
}

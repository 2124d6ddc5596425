import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// The resource values that a process has from an application that it belonged to are not its own.
@Suite(
    "Own resources of processes that become applications",
    .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)),
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

    /// What `Explain` says of an application's resources, once it says something.
    private func given(_ path: String) throws -> [String] {
        var given: [String] = []
        try family.wait("the resources") {
            if case .strings(let rows)? = try client.explain(path)["resources"] { given = rows }
            return !given.isEmpty
        }
        return given
    }

    @Test("a child of a large application that becomes an application itself starts from its own values")
    func child() throws {
        let child = family.all[200].pid
        let inner = try client.register("org.example.Inner", child)
        #expect(try given(inner) == ["Nice=\(own + 7), was \(own) (1 thread)"])
        try client.setFocus(child)
        try client.wait(for: inner, toBe: "active")
        try family.wait("its own nice value") { try Niceness.read(child) == own }
        #expect(family.count(nice: own + 7) == family.all.count - 1)
    }

    @Test("children that become applications while a large one is scanned start from their own values")
    func children() throws {
        // Minimizing it and showing it again keeps a scan under way at all times.
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

    @Test("a child forked since the last scan of its parent also starts from its own values")
    func newborn() throws {
        let app = try App(daemon.bus)
        let maker = try app.register("org.example.Actor", "suspension=s:manual,launch-mode=s:background")
        try app.application(maker, "FinishLaunching")
        #expect(try given(maker).first?.hasPrefix("Nice=\(own + 7), was \(own) ") == true)
        // What Explain says is planned, and may be set a moment later.
        try family.wait("its nice value") { try Niceness.read(app.pid) == own + 7 }
        let child = try app.make("fork")
        #expect(try Niceness.read(child) == own + 7)
        let path = try client.register("org.example.Inner", child)
        #expect(try given(path) == ["Nice=\(own + 7), was \(own) (1 thread)"])
        #expect(try Niceness.read(child) == own + 7)
        try client.application(path, "Unregister")
        try family.wait("its own nice value") { try Niceness.read(child) == own }
    }

    @Test("an application that is unregistered and registered again starts from its own values")
    func again() throws {
        try client.application(path, "Unregister")
        let next = try client.register("org.example.Large", family.pid)
        #expect(try given(next) == ["Nice=\(own + 7), was \(own) (\(family.all.count) threads)"])
        try client.application(next, "Unregister")
        try family.wait("the own nice values") { family.count(nice: own) == family.all.count }
    }
}

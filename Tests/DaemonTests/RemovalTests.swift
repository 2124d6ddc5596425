import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What the daemon has still to do for an application that has left it is no reason to take it up again.
@Suite(
    "Removed, and not yet let go", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)),
    .enabled(if: Capabilities.has(.sysNice), "needs CAP_SYS_NICE: a nice value is put back by lowering it"))
struct RemovalTests {
    /// A large application in the background that is suspended by request, and has the resources of that.
    private struct Scene {
        let daemon: TestDaemon
        let client: Client
        let family: Family
        let own: Int32
        let path: String

        init() throws {
            daemon = try TestDaemon()
            client = try daemon.subscriber()
            let family = try Family()
            self.family = family
            own = try Niceness.read(family.pid)
            let given = own + 7
            path = try client.register("org.example.Large", family.pid)
            try client.wait(for: path, toBe: "background")
            try client.application(path, "Suspend")
            try client.wait(for: path, toBe: "suspended")
            try family.wait("the resources") { family.count(nice: given) == family.all.count }
            #expect(family.stopped == family.all.count)
        }

        var files: [String] {
            ["applications", "holds", "resources"].flatMap { directory in
                TextFile.names(inDirectory: daemon.runtimeDirectory + "/" + directory).map {
                    "\(directory)/\($0)"
                }
            }
        }

        /// Who lives on has all that it had, and nothing is remembered.
        func expectNothingLeft() throws {
            #expect(try client.list() == [])
            #expect(family.stopped == 0)
            #expect(family.count(nice: own) == family.living.count)
            #expect(files == [])
        }
    }

    @Test(
        "an application that was unregistered stays so for the next daemon, which ends what the one before began",
        arguments: [SIGKILL, SIGUSR1])
    func unregistered(_ signal: Int32) throws {
        let scene = try Scene()
        try scene.client.application(scene.path, "Unregister")
        try scene.daemon.end(signal)
        // It was in the middle of it, or this says nothing.
        #expect(scene.files.contains("resources/1"))
        #expect(scene.family.count(nice: scene.own) < scene.family.all.count)
        try scene.daemon.start()
        try scene.expectNothingLeft()
    }

    @Test("whoever survives the main process has its own back from the next daemon")
    func orphans() throws {
        let scene = try Scene()
        try scene.daemon.end(SIGKILL)
        kill(scene.family.pid, SIGKILL)
        try scene.family.wait("its end") {
            [.zombie, .dead].contains(try Proc().stat(scene.family.pid).state)
        }
        try scene.daemon.start()
        try scene.expectNothingLeft()
    }

    @Test("a state that changes while many processes are given their resources: all have those of the last")
    func changed() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let family = try Family()
        let own = try Niceness.read(family.pid)
        let path = try client.register("org.example.Large", family.pid)
        for given in [own + 7, own, own + 7, own] {
            // In the middle of it.
            #expect(try eventually { try Niceness.read(family.all[family.all.count / 2].pid) == given })
            try client.setMinimized(family.pid, given == own)
        }
        try client.wait(for: path, toBe: "background")
        try family.wait("the resources") { family.count(nice: own + 7) == family.all.count }
    }

    @Test("so has the process of an application that registers itself anew before the end of it all")
    func registeredAnew() throws {
        let scene = try Scene()
        try scene.client.application(scene.path, "Unregister")
        let path = try scene.client.register("org.example.Large", scene.family.pid)
        try scene.daemon.end(SIGKILL)
        try scene.daemon.start()
        let client = scene.client
        #expect(try client.list().map { String($0.prefix { $0 != " " }) } == [path])
        #expect(try client.holds(path) == [])
        #expect(scene.family.stopped == 0)
        try client.application(path, "Unregister")
        try scene.family.wait("the resources") { scene.files == [] }
        try scene.expectNothingLeft()
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Work that the daemon still has to do for a removed application is no reason to register it again.
@Suite(
    "Removed applications with work left to do",
    .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)))
struct RemovalTests {
    /// A large application in the background that is suspended by request, with the resources of that state.
    private struct Scene {
        let daemon: TestDaemon
        let client: Client
        let family: Family
        let own: Int32
        let path: String

        init(processes: Int = 400) throws {
            daemon = try TestDaemon()
            client = try daemon.subscriber()
            let family = try Family(processes)
            self.family = family
            own = try OOMScoreAdjustment.read(family.pid, proc: Proc())
            let given = own + 900
            path = try client.register("org.example.Large", family.pid)
            try client.wait(for: path, toBe: "background")
            try client.application(path, "Suspend")
            try client.wait(for: path, toBe: "suspended")
            try family.wait("the resources") { family.count(score: given) == family.all.count }
            #expect(family.stopped == family.all.count)
        }

        var files: [String] {
            TextFile.names(inDirectory: daemon.runtimeDirectory + "/applications")
        }

        /// The processes that live on have their own values back, and no record is left.
        func expectNothingLeft() throws {
            #expect(try client.list() == [])
            #expect(family.stopped == 0)
            #expect(family.count(score: own) == family.living.count)
            #expect(files == [])
        }
    }

    @Test("the next daemon restores the values of processes that survive their main process")
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

    @Test("if the state changes while resources are being set, all processes get those of the last state")
    func changed() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let family = try Family()
        let own = try OOMScoreAdjustment.read(family.pid, proc: Proc())
        let path = try client.register("org.example.Large", family.pid)
        for given in [own + 200, own, own + 200, own] {
            // This is in the middle of the work.
            let middle = family.all[family.all.count / 2].pid
            #expect(try eventually { try OOMScoreAdjustment.read(middle, proc: Proc()) == given })
            try client.setMinimized(family.pid, given == own)
        }
        try client.wait(for: path, toBe: "background")
        try family.wait("the resources") { family.count(score: own + 200) == family.all.count }
    }

    @Test("an application registered anew before its values are restored gets its own values back, too")
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

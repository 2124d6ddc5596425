import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

/// GetHistory: how a user's applications have ended.
@Suite("History", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct HistoryTests {
    private static let id = "org.example.Editor"

    /// Each end as `reason state status`, the last first.
    private func history(_ client: Client, _ id: String = id) throws -> [String] {
        let reply = try client.manager("GetHistory") { try $0.append(id) }
        var ends: [String] = []
        var last = UInt64.max
        try reply.withEntered(.array, "(tssi)") {
            while !reply.atEnd {
                try reply.withEntered(.struct, "tssi") {
                    let time = try reply.readUInt64()
                    #expect(time <= last)
                    last = time
                    ends.append(
                        "\(try reply.readString()) \(try reply.readString()) \(try reply.readInt32())")
                }
            }
        }
        return ends
    }

    private func end(_ daemon: TestDaemon, _ client: Client, _ signal: Int32) throws {
        let child = try Child("sleep", ["1000"])
        let path = try client.register(Self.id, child.pid)
        child.kill(signal)
        try client.waitForRemoval(of: path)
    }

    @Test("the history has the last sixteen ends, with what is known of each, and outlives the daemon")
    func sixteen() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        #expect(try history(client) == [])
        for _ in 0..<15 { try end(daemon, client, SIGSEGV) }
        try end(daemon, client, SIGKILL)
        let app = try App(daemon.bus)
        let path = try app.register(Self.id)
        try app.ask("exit 7")
        try client.waitForRemoval(of: path)
        let ends = try history(client)
        #expect(ends.prefix(3) == ["exited not-running 7", "killed background 9", "crashed background 11"])
        #expect(ends.count == 16)
        try daemon.end(SIGTERM)
        try daemon.start()
        #expect(try history(daemon.client()) == ends)
        #expect(try history(client, "org.example.Other") == [])
    }

    /// Leaves only what a daemon keeps on the disk, as after a boot.
    private func reboot(_ daemon: TestDaemon, _ app: App) throws {
        app.process.kill(SIGKILL)
        try FileManager.default.removeItem(atPath: daemon.runtimeDirectory)
        mkdir(daemon.runtimeDirectory, 0o700)
        let file = "\(daemon.stateDirectory)/applications/\(getuid())/\(Self.id)"
        var record = RecordFile.read(try WholeFile.read(file)).record
        #expect(record["running"] != nil)
        record.lines = record.lines.map { $0.key == "running" ? Record.Line("running", "another") : $0 }
        try WholeFile.write(RecordFile.bytes(record), to: file)
        try daemon.start()
    }

    @Test(
        "an end is known although the daemon is killed before the disk answers, and is counted once",
        .enabled(if: SavedStateTests.canFreezeDisks, "needs root, loop devices, mkfs.ext4 and fsfreeze"))
    func notYetOnTheDisk() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        let disk = try SavedStateTests.Disk(ext4: daemon.stateDirectory)
        try disk.freeze()
        defer { try? disk.thaw() }
        try end(daemon, client, SIGKILL)
        // Another application with this id goes on.
        let first = try Child("sleep", ["1000"])
        try client.register(Self.id, first.pid)
        try end(daemon, client, SIGTERM)
        daemon.process.kill(SIGKILL)
        try disk.thaw()
        for signal in [SIGKILL, SIGTERM, SIGKILL] {
            try daemon.end(signal)
            try daemon.start()
            #expect(try history(Client(daemon.bus)) == ["killed background 15", "killed background 9"])
        }
        first.kill(SIGKILL)
        try client.wait("the third end") { try history(Client(daemon.bus)).count == 3 }
    }

    @Test("an application that ran in an earlier boot has the exit reason rebooted")
    func rebooted() throws {
        let daemon = try TestDaemon(keeps: true)
        let app = try App(daemon.bus)
        let path = try app.register(Self.id)
        try app.application(path, "SaveState ay:text")
        try daemon.end(SIGKILL)
        try reboot(daemon, app)
        let later = try daemon.client()
        #expect(try history(later) == ["rebooted  -1"])
        let next = try App(daemon.bus)
        let nextPath = try next.register(Self.id)
        #expect(try next.application(nextPath, "LoadState") == "text")
        #expect(
            try later.property(nextPath, "LaunchOptions")
                == .dictionary([
                    "first-launch": .bool(false), "restorable": .bool(true),
                    "exit-reason": .string("rebooted"),
                ]))
    }

    @Test(
        "GetHistory does not return another user's history",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func others() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        try end(daemon, client, SIGKILL)
        let other = try daemon.busctl(
            ["call", BusNames.service, BusNames.root, BusNames.manager, "GetHistory", "s", Self.id],
            uid: App.nobody)
        #expect(other.output == "a(tssi) 0\n")
    }

    private func ids(_ client: Client, _ options: [(String, Variant)] = []) throws -> [String] {
        try client.manager("ListHistory") { try $0.appendDictionary(options) }.readStrings()
    }

    @Test("ListHistory returns the ids of which an end is known, and to root those of another user")
    func list() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        #expect(try ids(client) == [])
        try end(daemon, client, SIGKILL)
        let child = try Child("sleep", ["1000"])
        try client.register("org.example.Running", child.pid)
        #expect(try ids(client) == [Self.id])
        #expect(try ids(client, [("user", .uint32(getuid()))]) == [Self.id])
        #expect(
            errorName { _ = try ids(client, [("user", .string("root"))]) } == ErrorName.invalidArgs.rawValue)
        #expect(errorName { _ = try ids(client, [("pid", .uint32(0))]) } == ErrorName.invalidArgs.rawValue)
        guard App.canBeOthers else { return }
        #expect(try ids(client, [("user", .uint32(App.nobody))]) == [])
        let app = try App(daemon.bus, uid: App.nobody)
        let path = try app.register("org.example.Nobody")
        try app.ask("exit 0")
        try client.waitForRemoval(of: path)
        #expect(try ids(client, [("user", .uint32(App.nobody))]) == ["org.example.Nobody"])
        let other = try daemon.busctl(
            [
                "call", BusNames.service, BusNames.root, BusNames.manager, "ListHistory", "a{sv}", "1",
                "user",
                "u", "\(getuid())",
            ], uid: App.nobody)
        #expect(other.output.contains("Access denied"))
    }
}

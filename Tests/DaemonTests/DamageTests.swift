import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

@testable import Daemon

/// Whatever happens to the files that a killed daemon left: no process stays frozen or stopped without a hold, and no
/// process is continued that the daemon had not stopped.
@Suite(
    "Damaged files", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct DamageTests {
    /// Applications that a daemon held when it was killed: one by its cgroup, one with its child by signal; and one
    /// that another process has stopped.
    private final class Scene {
        let daemon: TestDaemon
        let client: Client
        let home: TestCgroup
        let frozen: Child
        let stopped: App
        let child: Int32
        let bystander: Child
        /// The files that the daemon left, by their path below the runtime directory.
        private(set) var files: [String: [UInt8]] = [:]

        init(_ name: String = "app-damaged") throws {
            daemon = try TestDaemon()
            client = try daemon.client()
            home = try TestCgroup(name)
            frozen = try Child("sleep", ["1000"])
            try home.take(frozen.pid)
            let path = try client.register("org.example.Frozen", frozen.pid)
            stopped = try App(daemon.bus)
            let other = try stopped.register(
                "org.example.Stopped", "suspension=s:manual,launch-mode=s:background")
            try stopped.application(other, "FinishLaunching")
            child = try stopped.make("fork")
            bystander = try Child("sleep", ["1000"])
            let third = try client.register("org.example.Bystander", bystander.pid)
            bystander.kill(SIGSTOP)
            try client.wait("the stop") { try client.state(third) == "suspended" }
            try client.application(path, "Suspend")
            try client.application(other, "Suspend")
            #expect(try client.state(path) == "suspended" && client.state(other) == "suspended")
            try daemon.end(SIGKILL)
            for directory in ["", "applications/", "holds/"] {
                for name in TextFile.names(inDirectory: daemon.runtimeDirectory + "/" + directory) {
                    let file = directory + name
                    files[file] = try? WholeFile.read(daemon.runtimeDirectory + "/" + file)
                }
            }
            #expect(files.keys.filter { $0.hasPrefix("holds/") }.count == 2)
            #expect(files.keys.filter { $0.hasPrefix("applications/") }.count == 3)
        }

        /// Restores everything as the daemon left it, except for this file.
        func put(_ file: String = "", _ bytes: [UInt8] = []) throws {
            for (name, whole) in files {
                try WholeFile.write(name == file ? bytes : whole, to: daemon.runtimeDirectory + "/" + name)
            }
            try home.cgroup.freeze()
            for pid in [stopped.pid, child] { kill(pid, SIGSTOP) }
        }

        private func stands(_ pid: Int32) throws -> Bool {
            try Proc().hasPendingStop(pid) || isStopped(pid)
        }

        /// What is stopped or frozen but should not be, and what runs but should be stopped.
        var wrong: [String] {
            get throws {
                var wrong: [String] = []
                if try home.cgroup.wantsFrozen() { wrong.append("is frozen") }
                if try stands(stopped.pid) { wrong.append("is stopped") }
                if try stands(child) { wrong.append("has a stopped child") }
                if try !isStopped(bystander.pid) { wrong.append("another's stop was lifted") }
                return wrong
            }
        }

        /// The same while a daemon runs that holds some of them.
        func wrongWithHolds() throws -> [String] {
            let rows = try client.list()
            func isHeld(_ pid: Int32) throws -> Bool {
                guard let row = rows.first(where: { $0.contains(" \(pid) ") }) else { return false }
                return try !client.holds(String(row.prefix { $0 != " " })).isEmpty
            }
            return try wrong.filter { what in
                switch what {
                case "is frozen": try !isHeld(frozen.pid)
                case "is stopped", "has a stopped child": try !isHeld(stopped.pid)
                default: true
                }
            }
        }

        var names: [String] { files.keys.sorted() }
    }

    private static let isLong = ProcessInfo.processInfo.environment["APPSTATED_SOAK"] == "1"

    /// Each part takes every fourth of some sixteen hundred cases.
    private static let parts = 0..<4

    @Test(
        "with any byte of any file changed, or any file cut short, all are let go without a daemon",
        arguments: parts)
    func everyByte(part: Int) throws {
        let scene = try Scene()
        let journal = Journal(identifier: "test", minimum: .emergency)
        var count = 0
        func isRight(_ file: String, _ bytes: [UInt8], _ what: String) throws -> Bool {
            count += 1
            guard count % Self.parts.count == part else { return true }
            try scene.put(file, bytes)
            // Without the lock, which a child that another test forks would hold for a moment.
            let state = RuntimeState(directory: scene.daemon.runtimeDirectory, journal: journal)
            let status = state.map { Release.letGo($0, journal) }
            let wrong = try scene.wrong
            #expect(status == 0 && wrong == [], "\(file), \(what)")
            return status == 0 && wrong == []
        }
        guard try isRight("", [], "nothing") else { return }
        for file in scene.names {
            let bytes = scene.files[file] ?? []
            for length in bytes.indices {
                guard try isRight(file, Array(bytes.prefix(length)), "\(length) bytes") else { return }
            }
            for index in bytes.indices {
                // One kind of flip for each byte; with APPSTATED_SOAK=1 all of them.
                let flips: [UInt8] = [0x01, 0x20, 0x80, 0xFF]
                for bits in Self.isLong ? flips : [flips[index % flips.count]] {
                    var damaged = bytes
                    damaged[index] ^= bits
                    guard try isRight(file, damaged, "byte \(index) ^ \(bits)") else { return }
                }
            }
        }
        print("damaged files: \(count) cases, a quarter of them in part \(part)")
    }

    @Test(
        "an original value that cannot be restored stays on record, and the exit status says so",
        .enabled(if: !Capabilities.has(.sysResource), "this machine has CAP_SYS_RESOURCE"))
    func notRestored() throws {
        let scene = try Scene()
        let journal = Journal(identifier: "test", minimum: .emergency)
        try scene.put()
        let main = try Proc().identity(of: scene.frozen.pid)
        let score = try OOMScoreAdjustment.read(main.pid, proc: Proc())
        let file = scene.daemon.runtimeDirectory + "/applications/1"
        var record = RecordFile.read(try WholeFile.read(file)).record
        record.lines.removeAll { $0.key == "original" }
        let original = Record.Line(
            "original", ["oom_score_adj", "-1000", "\(score)", "\(score)"] + ProcessID(main).fields)
        record.lines.append(original)
        try WholeFile.write(RecordFile.bytes(record), to: file)
        let state = try #require(RuntimeState(directory: scene.daemon.runtimeDirectory, journal: journal))
        #expect(Release.letGo(state, journal) == 1)
        #expect(try scene.wrong == [])
        #expect(RecordFile.read(try WholeFile.read(file)).record.lines.contains(original))
    }

    @Test(
        "a stopped process whose parent has ended is continued even if the list of stopped processes is lost",
        arguments: ["emptied", "removed"], [false, true])
    func orphan(_ damage: String, isReleased: Bool) throws {
        let daemon = try TestDaemon()
        // A session of its own, as a terminal gives it.
        let app = try Child(
            "setsid",
            [
                "sh", "-c",
                "sh -c 'sleep 1000 & echo orphan $!; wait' & echo parent $!; wait; exec sleep 1000",
            ])
        func pid(_ name: String) throws -> Int32 {
            let line = try app.waitForLine(containing: name)
            return Int32(line.split(separator: " ").last ?? "") ?? 0
        }
        let (parent, orphan) = (try pid("parent"), try pid("orphan"))
        defer { kill(orphan, SIGKILL) }
        let path: String
        do {
            let client = try daemon.client()
            path = try client.register("org.example.App", app.pid)
            try client.application(path, "Suspend")
            kill(parent, SIGKILL)
            // Its parent is another process now.
            #expect(eventually { (try? Proc().stat(orphan).parent) != parent })
        }
        try daemon.end(SIGKILL)
        #expect(try isStopped(orphan))
        let holds = daemon.runtimeDirectory + "/holds"
        for name in TextFile.names(inDirectory: holds) {
            if damage == "removed" {
                try WholeFile.remove("\(holds)/\(name)")
            } else {
                try WholeFile.write([], to: "\(holds)/\(name)")
            }
        }
        if isReleased {
            #expect(try daemon.release().waitForExit() == .exited(0))
        } else {
            try daemon.start()
            let client = try daemon.client()
            // Where the file is missing, the next daemon does not hold the application.
            #expect(try client.holds(path).isEmpty == (damage == "removed"))
            try client.application(path, "Resume")
        }
        #expect(try !isStopped(app.pid))
        #expect(try !isStopped(orphan))
    }

    @Test("what could not be thawed is thawed later, unless it is frozen for another application by then")
    func later() throws {
        let scene = try Scene()
        let journal = Journal(identifier: "test", minimum: .emergency)
        try scene.put()
        let state = try #require(RuntimeState(directory: scene.daemon.runtimeDirectory, journal: journal))
        let found = state.found().first { $0.name == "1" }
        let entry = try #require(found)
        let proc = Proc()
        let taken = try entry.thaw(proc: proc) { _ in true }
        #expect(taken == nil)
        #expect(try scene.home.cgroup.wantsFrozen())
        let thawed = try entry.thaw(proc: proc) { _ in false }
        #expect(thawed?.path == scene.home.cgroup.path)
        let again = try entry.thaw(proc: proc) { _ in false }
        #expect(again == nil)
        #expect(try !scene.home.cgroup.wantsFrozen())
    }

    @Test("the next daemon takes over what is intact, and lets the rest go")
    func nextDaemon() throws {
        let scene = try Scene("app-\\\u{301}")
        for file in scene.names where file.hasPrefix("applications/") || file.hasPrefix("holds/") {
            let bytes = scene.files[file] ?? []
            var flipped = bytes
            flipped[bytes.count / 2] ^= 0x20
            let cases: [[UInt8]] = [
                [], Array(bytes.prefix(bytes.count / 2)), Array(bytes.dropLast()), flipped,
            ]
            for damaged in cases {
                try scene.put(file, damaged)
                try scene.daemon.start()
                #expect(try scene.wrongWithHolds() == [], "\(file), \(damaged.count) bytes")
                let isRecord = file.hasPrefix("applications/")
                #expect(try scene.client.list().count == (isRecord ? 2 : 3))
                if isRecord {
                    let number = file.split(separator: "/")[1]
                    try scene.daemon.process.waitForLine(
                        containing: "application \(number) of the previous daemon cannot be taken over")
                } else {
                    #expect(try scene.home.cgroup.isFrozen() && isStopped(scene.stopped.pid))
                }
                try scene.daemon.end(SIGKILL)
            }
        }
    }

    @Test(
        "without the other files nothing is lost: each application's file names its boot and its bus")
    func others() throws {
        let scene = try Scene()
        for name in TextFile.names(inDirectory: scene.daemon.runtimeDirectory) {
            unlink(scene.daemon.runtimeDirectory + "/" + name)
        }
        try scene.daemon.start()
        #expect(try scene.client.list().count == 3)
        #expect(try scene.home.cgroup.isFrozen() && isStopped(scene.stopped.pid))
        let next = try Child("sleep", ["1000"])
        #expect(try scene.client.register("org.example.Next", next.pid) == BusNames.path(ofApplication: 4))
    }

    @Test("appstated --release lets nothing go while a daemon runs")
    func notReleased() throws {
        let scene = try Scene()
        try scene.daemon.start()
        let child = try scene.daemon.release()
        #expect(try child.waitForExit() == .exited(1), "\(child.errors)")
        #expect(child.errors.contains("a running daemon uses \(scene.daemon.runtimeDirectory)"))
        #expect(try scene.home.cgroup.isFrozen() && isStopped(scene.stopped.pid))
    }

    @Test("appstated --release lets all go; the next daemon knows the applications, without holds")
    func released() throws {
        let scene = try Scene()
        let child = try scene.daemon.release()
        #expect(try child.waitForExit() == .exited(0), "\(child.errors)")
        #expect(try scene.wrong == [])
        #expect(child.errors.contains("thawed \(scene.home.cgroup)"))
        try scene.daemon.start()
        let rows = try scene.client.list()
        #expect(rows.count == 3)
        for row in rows where !row.contains(" \(scene.bystander.pid) ") {
            let path = String(row.prefix { $0 != " " })
            try scene.client.wait("\(row) to run") { try scene.client.state(path) == "background" }
            #expect(try scene.client.holds(path) == [])
        }
        #expect(try scene.wrong == [])
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

/// Whatever happens to the files that a killed daemon left: nothing stays frozen without a hold, and nothing is let go that
/// others have stopped.
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
            for directory in ["", "applications/"] {
                for name in TextFile.names(inDirectory: daemon.runtimeDirectory + "/" + directory) {
                    let file = directory + name
                    files[file] = try? WholeFile.read(daemon.runtimeDirectory + "/" + file)
                }
            }
            #expect(files.keys.filter { $0.hasPrefix("applications/") }.count == 3)
            #expect(home.cgroup.isMarked(as: daemon.runtimeDirectory))
        }

        /// Restores everything as the daemon left it, except for this file.
        func put(_ file: String = "", _ bytes: [UInt8] = []) throws {
            for (name, whole) in files {
                try WholeFile.write(name == file ? bytes : whole, to: daemon.runtimeDirectory + "/" + name)
            }
            try home.cgroup.mark(as: daemon.runtimeDirectory)
            try home.cgroup.freeze()
            for pid in [stopped.pid, child] {
                kill(pid, SIGSTOP)
                try waitUntilStopped(pid)
            }
        }

        func loseFiles() throws {
            try FileManager.default.removeItem(atPath: daemon.runtimeDirectory)
            mkdir(daemon.runtimeDirectory, 0o700)
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

        /// What is left stopped if nothing says whose processes have SIGSTOP.
        static let lost = ["is stopped", "has a stopped child"]

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

    /// Whether this beginning of a file has the whole line of this kind.
    private static func says(_ key: String, _ bytes: ArraySlice<UInt8>) -> Bool {
        RecordFile.read(Array(bytes)).record[key] != nil
    }

    @Test("with any file cut short, all are let go without a daemon", arguments: 0..<4)
    func cut(part: Int) throws {
        let scene = try Scene()
        var count = 0
        for file in scene.names {
            let bytes = scene.files[file] ?? []
            for length in bytes.indices where length % 32 == part * 8 {
                try scene.put(file, Array(bytes.prefix(length)))
                let release = try scene.daemon.release()
                #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
                // Whose processes have SIGSTOP is in the beginning of their file, and nowhere else.
                let isLost = file == "applications/2" && !Self.says("user", bytes.prefix(length))
                #expect(try scene.wrong == (isLost ? Scene.lost : []), "\(file), \(length) bytes")
                count += 1
            }
        }
        #expect(count > 8)
    }

    @Test(
        "if all files are lost, the next daemon thaws what the last one froze, and so does --release",
        arguments: ["daemon", "--release", "--release without its directory"])
    func lost(_ means: String) throws {
        let scene = try Scene()
        try scene.loseFiles()
        if means == "daemon" {
            try scene.daemon.start()
            #expect(try scene.client.list() == [])
        } else {
            if means.hasSuffix("directory") { rmdir(scene.daemon.runtimeDirectory) }
            let release = try scene.daemon.release()
            #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
            #expect(release.errors.contains("thawed \(scene.home.cgroup)"))
        }
        #expect(try scene.wrong == Scene.lost)
        #expect(!scene.home.cgroup.isMarked(as: scene.daemon.runtimeDirectory))
    }

    @Test(
        "a freeze that is not the daemon's is left alone, and a mark on what runs is removed",
        arguments: [false, true])
    func marks(isReleased: Bool) throws {
        let daemon = try TestDaemon()
        let directory = daemon.runtimeDirectory
        try daemon.end(SIGKILL)
        let homes = try (0..<4).map { _ in try TestCgroup("app-marked") }
        let (others, another, left, nested) = (homes[0], homes[1], homes[2], homes[3])
        let below = try TestCgroup("below", below: nested.cgroup)
        try others.cgroup.freeze()
        try another.cgroup.mark(as: directory + "-of-another-daemon")
        try another.cgroup.freeze()
        try left.cgroup.mark(as: directory)
        try nested.cgroup.freeze()
        try below.cgroup.mark(as: directory)
        try below.cgroup.freeze()
        if isReleased {
            #expect(try daemon.release().waitForExit() == .exited(0))
        } else {
            try daemon.start()
            // By its first answer it has looked at all cgroups.
            #expect(try daemon.client().list() == [])
        }
        #expect(try others.cgroup.wantsFrozen())
        #expect(try another.cgroup.wantsFrozen())
        #expect(another.cgroup.isMarked(as: directory + "-of-another-daemon"))
        #expect(!left.cgroup.isMarked(as: directory))
        #expect(try nested.cgroup.wantsFrozen() && !below.cgroup.wantsFrozen())
    }

    @Test("the next daemon takes over what is whole, and lets the rest go")
    func nextDaemon() throws {
        let scene = try Scene("app-\\\u{301}")
        for file in scene.names where file.hasPrefix("applications/") {
            let bytes = scene.files[file] ?? []
            for length in [0, bytes.count / 2, bytes.count - 1] {
                try scene.put(file, Array(bytes.prefix(length)))
                try scene.daemon.start()
                let isLost = file == "applications/2" && length == 0
                #expect(try scene.wrongWithHolds() == (isLost ? Scene.lost : []), "\(file), \(length) bytes")
                #expect(try scene.client.list().count == 2)
                let number = file.split(separator: "/")[1]
                try scene.daemon.process.waitForLine(
                    containing: "application \(number) of the previous daemon cannot be taken over")
                try scene.daemon.end(SIGKILL)
            }
        }
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

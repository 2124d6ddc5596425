import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// SaveState and LoadState: saved state outlives the application, the daemon and the boot (§ 7).
@Suite("Saved state", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct SavedStateTests {
    private static let id = "org.example.Editor"

    /// An application that has finished launching.
    private func launch(_ daemon: TestDaemon, _ id: String = id) throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register(id)
        try app.application(path, "FinishLaunching")
        return (app, path)
    }

    private func options(_ client: Client, _ path: String) throws -> [String: Variant] {
        guard case .dictionary(let options) = try client.property(path, "LaunchOptions") else { return [:] }
        return options
    }

    @Test("an application and its next launch load the state saved last, as bytes and as a file")
    func loaded() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        let (app, path) = try launch(daemon)
        #expect(try app.application(path, "LoadState") == "")
        #expect(try app.application(path, "LoadStateFile") == "")
        try app.application(path, "SaveState ay:first")
        try app.application(path, "SaveState ay:second")
        #expect(try app.application(path, "LoadState") == "second")
        try app.application(path, "SaveStateFile memory:third")
        #expect(try app.application(path, "LoadState") == "third")
        #expect(try app.application(path, "LoadStateFile") == "third")
        #expect(try options(client, path) == ["first-launch": .bool(true)])
        app.process.kill(SIGSEGV)
        try client.waitForRemoval(of: path)

        let (next, nextPath) = try launch(daemon)
        #expect(try next.application(nextPath, "LoadState") == "third")
        #expect(
            try options(client, nextPath) == [
                "first-launch": .bool(false), "restorable": .bool(true), "exit-reason": .string("crashed"),
                "exit-status": .int32(SIGSEGV), "previous-state": .string("inactive"),
            ])
        // An empty state leaves no file.
        try next.application(nextPath, "SaveState ay:")
        #expect(try next.application(nextPath, "LoadState") == "")
        #expect(
            try FileManager.default.subpathsOfDirectory(atPath: daemon.stateDirectory + "/states") == [
                "\(getuid())"
            ])
    }

    @Test("a state that is too large for a message is saved and loaded as a file")
    func large() throws {
        let daemon = try TestDaemon(keeps: true)
        let (app, path) = try launch(daemon)
        try app.application(path, "SaveState zeros:1048576")
        #expect(try app.application(path, "LoadState") == "1048576-bytes")
        #expect(
            errorName { try app.application(path, "SaveState zeros:1048577") } == ErrorName.tooLarge.rawValue)
        #expect(
            errorName { try app.application(path, "SaveState zeros:3000000") } == ErrorName.tooLarge.rawValue)
        try app.application(path, "SaveStateFile memory-zeros:3000000")
        #expect(errorName { try app.application(path, "LoadState") } == ErrorName.tooLarge.rawValue)
        #expect(try app.application(path, "LoadStateFile") == "3000000-bytes")
    }

    @Test("a file that can still be changed is refused, and the saved state stays")
    func unsealed() throws {
        let daemon = try TestDaemon(keeps: true)
        let (app, path) = try launch(daemon)
        try app.application(path, "SaveState ay:kept")
        for argument in ["unsealed:text", "h:\(getpid())"] {
            #expect(
                errorName { try app.application(path, "SaveStateFile \(argument)") }
                    == ErrorName.invalidArgs.rawValue)
        }
        #expect(try app.application(path, "LoadState") == "kept")
    }

    @Test("a user's applications together save no more than SavedStatePerUser=")
    func quota() throws {
        let daemon = try TestDaemon(configuration: "[Limits]\nSavedStatePerUser=1M\n", keeps: true)
        let (one, first) = try launch(daemon, "org.example.One")
        let (two, second) = try launch(daemon, "org.example.Two")
        try one.application(first, "SaveState zeros:700000")
        let limit = ErrorName.limitsExceeded.rawValue
        #expect(errorName { try two.application(second, "SaveState zeros:700000") } == limit)
        #expect(errorName { try one.application(first, "SaveStateFile memory-zeros:1048577") } == limit)
        #expect(try one.application(first, "LoadState") == "700000-bytes")
        // To replace its own state, there is room.
        try one.application(first, "SaveState zeros:1000000")
        try one.application(first, "SaveState ay:little")
        try two.application(second, "SaveState zeros:700000")
    }

    @Test("a force quit drops the state, and so does a crash of the launch that was to restore it")
    func dropped() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        let (first, path) = try launch(daemon)
        try first.application(path, "SaveState ay:text")
        try client.terminate(path, force: true)
        try client.waitForRemoval(of: path)
        let (second, secondPath) = try launch(daemon)
        #expect(try second.application(secondPath, "LoadState") == "")
        #expect(try options(client, secondPath)["exit-reason"] == .string("force-quit"))
        #expect(try options(client, secondPath)["restorable"] == nil)

        // This launch crashes, but had nothing to restore.
        try second.application(secondPath, "SaveState ay:again")
        second.process.kill(SIGABRT)
        try client.waitForRemoval(of: secondPath)
        let third = try App(daemon.bus)
        let thirdPath = try third.register(Self.id)
        #expect(try third.application(thirdPath, "LoadState") == "again")
        third.process.kill(SIGABRT)
        try client.waitForRemoval(of: thirdPath)
        let (fourth, fourthPath) = try launch(daemon)
        #expect(try fourth.application(fourthPath, "LoadState") == "")
    }

    @Test("whenever the daemon is killed, a state whose saving was answered is there and complete")
    func killed() throws {
        let daemon = try TestDaemon(keeps: true)
        var random = SystemRandomNumberGenerator()
        var (app, path) = try launch(daemon)
        var saved = 0
        for round in 1...100 {
            // The daemon may be killed while the last of these calls is under way.
            let count = Int.random(in: 1...4, using: &random)
            for _ in 1..<count {
                saved += 1
                try app.application(path, "SaveState ay:\(text(saved))")
            }
            let call = try app.begin("\(path) \(BusNames.application) SaveState ay:\(text(saved + 1))")
            usleep(UInt32.random(in: 0...3_000, using: &random))
            try daemon.end(SIGKILL)
            // The answer is an error if the daemon was killed before.
            try app.process.waitForLine(containing: "answer \(call) ")
            let wasAnswered = app.answer(to: call)?.hasPrefix("ok") == true
            // In every other round, the application ends while no daemon runs.
            let hasEnded = round.isMultiple(of: 2)
            if hasEnded { app.process.kill(SIGKILL) }
            try daemon.start()
            if hasEnded { (app, path) = try launch(daemon) }
            let loaded = try app.application(path, "LoadState")
            let isLater = loaded == text(saved + 1)
            #expect(isLater || loaded == text(saved) && !wasAnswered, "round \(round)")
            if isLater { saved += 1 }
        }
    }

    /// The text of a version: some thousand bytes that no other version has.
    private func text(_ version: Int) -> String {
        version == 0 ? "" : String(repeating: "\(version).", count: 500)
    }

    @Test("without STATE_DIRECTORY nothing is kept, and the calls fail with NotSupported")
    func nothing() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let (app, path) = try launch(daemon)
        for call in ["SaveState ay:x", "LoadState", "SaveStateFile memory:x", "LoadStateFile"] {
            #expect(
                errorName { try app.application(path, call) } == ErrorName.notSupported.rawValue, "\(call)")
        }
        #expect(try options(client, path) == [:])
    }

    // MARK: Forgetting

    private func forget(_ client: Client) throws {
        try client.manager("ForgetApplication") { try $0.append(Self.id) }
    }

    @Test("the next launch of an application that was forgotten is the first, and no file of it is left")
    func forgotten() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        let unknown = ErrorName.noSuchApplication.rawValue
        #expect(errorName { try forget(client) } == unknown)
        let (app, path) = try launch(daemon)
        try app.application(path, "SaveState ay:text")
        #expect(errorName { try forget(client) } == ErrorName.alreadyRegistered.rawValue)
        #expect(try app.application(path, "LoadState") == "text")
        app.process.kill(SIGKILL)
        try client.waitForRemoval(of: path)
        try forget(client)
        let files = try FileManager.default.subpathsOfDirectory(atPath: daemon.stateDirectory)
        #expect(!files.contains { $0.hasSuffix(Self.id) }, "\(files)")
        #expect(errorName { try forget(client) } == unknown)
        let (next, nextPath) = try launch(daemon)
        #expect(try options(client, nextPath) == ["first-launch": .bool(true)])
        #expect(try next.application(nextPath, "LoadState") == "")
        // It is kept as any other.
        try next.application(nextPath, "SaveState ay:again")
        next.process.kill(SIGKILL)
        try client.waitForRemoval(of: nextPath)
        let (last, lastPath) = try launch(daemon)
        #expect(try last.application(lastPath, "LoadState") == "again")
    }

    // MARK: Disks

    /// A file system of the test's own, mounted at the daemon's directory and unmounted with the test.
    final class Disk {
        let directory: String
        private var isFrozen = false

        init(_ directory: String, _ arguments: [String]) throws {
            self.directory = directory
            try Self.run(["mount"] + arguments + [directory])
        }

        /// An ext4 file system in a file.
        convenience init(ext4 directory: String) throws {
            let image = directory + ".image"
            try Self.run(["truncate", "-s", "16M", image])
            try Self.run(["mkfs.ext4", "-q", image])
            try self.init(directory, ["-o", "loop", image])
        }

        deinit {
            try? thaw()
            try? Self.run(["umount", "-l", directory])
        }

        /// Holds back every write (fsfreeze(8)) until `thaw`, or until this object is released.
        func freeze() throws {
            try Self.run(["fsfreeze", "--freeze", directory])
            isFrozen = true
        }

        func thaw() throws {
            guard isFrozen else { return }
            try Self.run(["fsfreeze", "--unfreeze", directory])
            isFrozen = false
        }

        func remount(_ options: String) throws {
            try Self.run(["mount", "-o", "remount,\(options)", directory])
        }

        private static func run(_ command: [String]) throws {
            let child = try Child(command[0], Array(command.dropFirst()))
            guard try child.waitForExit() == .exited(0) else {
                throw TestFailure("\(command): \(child.errors)")
            }
        }
    }

    private static let canMount: Bool = {
        guard TestDaemon.canBeOthers, let probe = try? Child("unshare", ["--mount", "--", "true"]) else {
            return false
        }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    /// fsfreeze(8) holds back every write, like a disk that does not answer.
    static let canFreezeDisks: Bool = {
        guard canMount, Programs.inPath("mkfs.ext4") != nil, Programs.inPath("fsfreeze") != nil else {
            return false
        }
        let directory = NSTemporaryDirectory() + "frozen-\(getpid())"
        mkdir(directory, 0o700)
        defer {
            rmdir(directory)
            unlink(directory + ".image")
        }
        return (try? Disk(ext4: directory)) != nil
    }()

    @Test(
        "saving to a full disk fails, and the state saved before stays complete",
        .enabled(if: canMount, "needs root, and mounts"))
    func full() throws {
        let daemon = try TestDaemon(keeps: true)
        let disk = try Disk(daemon.stateDirectory, ["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"])
        let (app, path) = try launch(daemon)
        try app.application(path, "SaveState ay:old")
        #expect(
            errorName { try app.application(path, "SaveState zeros:900000") } == ErrorName.failed.rawValue)
        #expect(try app.application(path, "LoadState") == "old")
        try app.application(path, "SaveState ay:new")
        #expect(try app.application(path, "LoadState") == "new")
        withExtendedLifetime(disk) {}
    }

    // MARK: Others

    @Test(
        "a sandboxed process has no access to the state of an id that its sandbox is not known by",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func sandboxed() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        let (app, path) = try launch(daemon)
        try app.application(path, "SaveState ay:secret")
        app.process.kill(SIGKILL)
        try client.waitForRemoval(of: path)

        let inside = try App(daemon.bus, isSandboxed: true)
        let own = try inside.register(Self.id)
        for call in ["SaveState ay:forged", "LoadState", "SaveStateFile memory:forged", "LoadStateFile"] {
            #expect(
                errorName { try inside.application(own, call) } == ErrorName.accessDenied.rawValue, "\(call)")
        }
        for member in ["GetHistory", "ForgetApplication"] {
            #expect(
                errorName { try inside.manager("\(member) s:\(Self.id)") } == ErrorName.accessDenied.rawValue)
        }
        #expect(try options(client, own) == [:])
        // Its end does not count as the other application's end.
        try client.terminate(own, force: true)
        try client.waitForRemoval(of: own)
        let (next, nextPath) = try launch(daemon)
        #expect(try next.application(nextPath, "LoadState") == "secret")
        #expect(try options(client, nextPath)["exit-reason"] == .string("killed"))
    }

}

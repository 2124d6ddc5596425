import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// A stop by signal instead of the freezer, and a daemon that is killed meanwhile. The test makes that moment last: a main
/// process that waits in vfork(2) takes no SIGSTOP before its child has executed its program.
@Suite(
    "Signals instead of the freezer",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct FallbackTests {
    @Test(
        "a daemon without descriptors thaws what it froze once it has descriptors again",
        .enabled(if: Programs.inPath("prlimit") != nil, "needs prlimit"))
    func withoutDescriptors() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let home = try TestCgroup("app-test")
        let child = try Child("sleep", ["1000"])
        try home.take(child.pid)
        let path = try client.register("org.example.App", child.pid)
        try client.application(path, "Suspend")
        for files in [3, 1_024] {
            let limit = try Child("prlimit", ["--pid=\(daemon.process.pid)", "--nofile=\(files):"])
            #expect(try limit.waitForExit() == .exited(0))
            if files > 3 { break }
            try client.application(path, "Resume")
            #expect(try home.cgroup.isFrozen())
            #expect(try client.state(path) == "suspended")
        }
        try client.wait("the thaw") { try !home.cgroup.wantsFrozen() }
        try client.wait(for: path, toBe: "background")
        #expect(try client.holds(path) == [])
    }

    @Test(
        "if a cgroup cannot be frozen, the application is stopped by signal, and no process stays stopped",
        .enabled(if: ReadOnly.isPossible, "needs the right to mount"))
    func cannotBeFrozen() throws {
        let scene = try CgroupScene()
        let lock = try ReadOnly(scene.cgroup.directory + "/cgroup.freeze")
        defer { lock.lift() }
        try scene.client.application(scene.path, "Suspend")
        #expect(try scene.pids.allSatisfy { try isStopped($0) })
        #expect(!scene.isMarked)
        try scene.daemon.end(SIGKILL)
        try scene.daemon.start()
        #expect(try scene.client.holds(scene.path) == ["request uid:\(getuid())"])
        #expect(try scene.pids.allSatisfy { try isStopped($0) })
        try scene.client.application(scene.path, "Resume")
        #expect(try scene.noneIsStopped && scene.client.holds(scene.path) == [])
    }
}

/// A file that nobody can write to, not even root: it is mounted over itself.
private struct ReadOnly {
    let path: String

    static let isPossible: Bool = {
        guard let probe = try? TestCgroup("test-probe"),
            let lock = try? ReadOnly(probe.cgroup.directory + "/cgroup.freeze")
        else { return false }
        defer { lock.lift() }
        return (try? probe.cgroup.freeze()) == nil
    }()

    init(_ path: String) throws {
        self.path = path
        try Self.run("mount", "--bind", path, path)
        try Self.run("mount", "-o", "remount,bind,ro", path)
    }

    func lift() { try? Self.run("umount", path) }

    private static func run(_ program: String, _ arguments: String...) throws {
        let child = try Child(program, arguments)
        guard try child.waitForExit() == .exited(0) else {
            throw TestFailure("\(program) \(arguments): \(child.errors)")
        }
    }
}

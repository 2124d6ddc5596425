import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// The daemon stops nothing that it could not record first.
@Suite(
    "Stops that cannot be recorded",
    .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: SmallDisk.isPossible, "needs mount(8), as root"))
struct UnrecordedTests {
    /// A daemon whose runtime directory is small, with an application in the background.
    fileprivate struct Scene {
        let daemon: TestDaemon
        let client: Client
        let disk: SmallDisk
        let child: Child
        let path: String

        init(_ options: [(String, Variant)] = []) throws {
            daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=0\n")
            client = try daemon.subscriber()
            try daemon.end(SIGTERM)
            disk = try SmallDisk(at: daemon.runtimeDirectory)
            try daemon.start()
            child = try Child("sleep", ["1000"])
            path = try client.register("org.example.App", child.pid, options)
        }

        func restart() throws {
            try daemon.end(SIGKILL)
            try daemon.start()
        }
    }

    @Test(
        "while the runtime directory is full, Suspend is refused with the reason and stops nothing"
    )
    func request() throws {
        let scene = try Scene()
        try scene.disk.fill()
        #expect(
            scene.client.error { try scene.client.application(scene.path, "Suspend") }
                == ErrorName.notSuspendable.rawValue)
        #expect(try !isStopped(scene.child.pid))
        #expect(try scene.client.holds(scene.path) == [])
        #expect(try scene.objection.contains("it could not be recorded"))
        // A daemon that is killed now leaves no process stopped.
        try scene.restart()
        #expect(try !isStopped(scene.child.pid))
        #expect(try scene.client.state(scene.path) == "background")
        #expect(try scene.client.holds(scene.path) == [])

        try scene.disk.clear()
        try scene.client.application(scene.path, "Suspend")
        #expect(try isStopped(scene.child.pid))
        // What was recorded before stays on record, even without room for more.
        try scene.disk.fill()
        try scene.restart()
        #expect(try isStopped(scene.child.pid))
        #expect(try scene.client.holds(scene.path) == ["request uid:\(getuid())"])
        try scene.client.application(scene.path, "Resume")
        #expect(try !isStopped(scene.child.pid))
    }

    @Test("policy suspends nothing that cannot be recorded until there is room again")
    func policy() throws {
        let scene = try Scene([("launch-mode", .string("foreground")), ("suspension", .string("automatic"))])
        try scene.disk.fill()
        try scene.client.setMinimized(scene.child.pid, true)
        try scene.client.wait("the refusal") { try scene.objection.contains("it could not be recorded") }
        #expect(try !isStopped(scene.child.pid))
        #expect(try scene.client.state(scene.path) == "background")
        try scene.disk.clear()
        // The daemon tries again by itself.
        try scene.client.wait("the stop") { try scene.client.state(scene.path) == "suspended" }
        #expect(try isStopped(scene.child.pid))
        try scene.restart()
        #expect(try scene.client.holds(scene.path) == ["policy appstated"])
    }
}

extension UnrecordedTests.Scene {
    fileprivate var objection: String {
        get throws {
            guard case .string(let why)? = try client.explain(path)["last-objection"] else { return "" }
            return why
        }
    }
}

/// A file system of 64 KiB of its own, which can be filled.
private final class SmallDisk {
    let path: String

    static let isPossible: Bool = {
        guard getuid() == 0, let directory = try? Scratch() else { return false }
        return (try? SmallDisk(at: directory.path)) != nil
    }()

    init(at path: String) throws {
        self.path = path
        let child = try Child("mount", ["-t", "tmpfs", "-o", "size=64k,mode=0700", "none", path])
        guard try child.waitForExit() == .exited(0) else { throw TestFailure("mount: \(child.errors)") }
    }

    deinit { _ = try? Child("umount", ["--lazy", path]).waitForExit() }

    /// Leaves no room, not even for a single byte.
    func fill() throws {
        let file = open(path + "/ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw TestFailure("open ballast: \(errno)") }
        defer { close(file) }
        let page = [UInt8](repeating: 0, count: 4_096)
        while write(file, page, page.count) > 0 {}
        guard errno == ENOSPC else { throw TestFailure("fill: \(errno)") }
    }

    func clear() throws { unlink(path + "/ballast") }
}

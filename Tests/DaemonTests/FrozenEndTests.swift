import AppStateBus
import Glibc
import Linux
import TestSupport
import Testing

/// A cgroup that is to be frozen does not count as frozen for a moment while a process in it dies or enters it. No
/// process runs then.
@Suite(
    "Killed while frozen", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct FrozenEndTests {
    /// Allocates so much memory, in MiB, that an end takes long enough to be seen.
    private static let large = "allocate 400"

    @Test(
        "a frozen application that is killed, by us or another process, does not run before its end",
        arguments: [true, false])
    func whole(_ isOurs: Bool) throws {
        let scene = try CgroupScene()
        try scene.app.ask(Self.large)
        try scene.client.application(scene.path, "Suspend")
        try scene.client.settle()
        scene.client.forget()
        if isOurs {
            try scene.client.terminate(scene.path, force: true)
        } else {
            try scene.home.kill()
        }
        _ = try scene.client.waitForRemoval(of: scene.path)
        #expect(scene.client.edges(of: scene.path) == ["suspended→not-running"])
    }

    @Test(
        "an application that is moved out of the cgroup we froze is stopped again, and Resume lets it go",
        arguments: [true, false])
    func moved(_ isOurs: Bool) throws {
        let scene = try CgroupScene()
        if isOurs {
            try scene.client.application(scene.path, "Suspend")
        } else {
            try scene.cgroup.freeze()
            try scene.client.wait(for: scene.path, toBe: "suspended")
        }
        let other = try TestCgroup("app-other")
        for pid in scene.pids { try other.take(pid) }
        if isOurs {
            try scene.client.wait("it to be stopped again") {
                let stands = try other.cgroup.isFrozen() || isStopped(scene.app.pid)
                return try stands && scene.client.state(scene.path) == "suspended"
            }
            #expect(try !scene.cgroup.wantsFrozen())
            try scene.client.application(scene.path, "Resume")
        } else {
            try scene.client.wait(for: scene.path, toBe: "background")
            try scene.cgroup.thaw()
        }
        try scene.app.settle()
        #expect(try scene.client.state(scene.path) == "background")
        #expect(try scene.client.holds(scene.path) == [])
    }
}

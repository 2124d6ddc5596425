import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

/// Which users' memory a file of `Source=` describes.
@Suite("Sources of pressure")
struct PressureSourceTests {
    @Test(
        "the machine concerns all users, a user's slice that user, and any other cgroup is a part",
        arguments: [
            ("/proc/pressure/memory", nil, false), ("/sys/fs/cgroup/memory.pressure", nil, false),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/memory.pressure", 1000, false),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/memory.pressure", 1000, true),
            ("/sys/fs/cgroup/user.slice/memory.pressure", nil, true),
            ("/sys/fs/cgroup/user.slice/user-x.slice/memory.pressure", nil, true),
            ("/sys/fs/cgroup/a/user-1000.slice/memory.pressure", nil, true),
            ("/sys/fs/cgroup/a/../memory.pressure", nil, false),
            ("/sys/fs/cgroup/a/memory.high", nil, false),
        ] as [(String, UInt32?, Bool)])
    func configured(_ path: String, _ user: UInt32?, _ isPart: Bool) {
        let hierarchy = UnifiedHierarchy(mountPoint: "/sys/fs/cgroup")
        let source = PressureSource(configured: path, in: hierarchy)
        #expect(source == PressureSource(path: path, user: user, isPart: isPart))
        #expect(PressureSource(configured: path, in: nil) == PressureSource(path: path))
    }

    @Test(
        "a configured source that is missing is watched once it is there and an application is registered",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func missing() throws {
        let base = try #require(TestCgroup.base)
        let name = "late-\(getpid())"
        let path = "\(base.directory)/\(name)/memory.pressure"
        let daemon = try TestDaemon(configuration: "[Pressure]\nSource=\(path)\n")
        try daemon.process.waitForLine(containing: "is not watched")
        var cgroup: TestCgroup? = try TestCgroup(name, below: base)
        try #require(cgroup?.cgroup.has("memory.pressure") == true)
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        _ = try client.register("org.example.App", child.pid)
        cgroup = nil
        try daemon.process.waitForLine(containing: "is no longer watched")
    }
}

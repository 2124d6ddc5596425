import Foundation
import Glibc
public import Linux

/// A cgroup of the test's own. Its processes end, and it is removed, when this object is released.
public final class TestCgroup {
    public let cgroup: Cgroup

    /// Whether cgroups can be made and processes moved: this needs root, and a writable mount of cgroup2.
    public static let isAvailable = (try? TestCgroup("test-probe")) != nil
    public static let whatIsMissing: String = "needs root and a writable mount of cgroup2"

    /// Makes a cgroup below this process's, with a unique name that begins with `name`. If there is an `owner`, the
    /// directory belongs to that user.
    public convenience init(_ name: String = "test", owner: UInt32? = nil) throws {
        guard let base = Self.base else { throw TestFailure("no cgroup2") }
        try self.init("\(name)-\(UUID().uuidString)", below: base)
        if let owner { chown(cgroup.directory, owner, owner) }
    }

    public init(_ name: String, below parent: Cgroup) throws {
        guard let cgroup = Cgroup(path: "\(parent.isRoot ? "" : parent.path)/\(name)", in: parent.hierarchy)
        else { throw TestFailure("not the name of a cgroup: \(name)") }
        self.cgroup = cgroup
        guard mkdir(cgroup.directory, 0o755) == 0 else { throw TestFailure("mkdir \(cgroup): \(errno)") }
    }

    deinit {
        try? kill()
        try? cgroup.thaw()
        // Killed processes leave the cgroup a moment after the kill.
        if let events = try? CgroupEvents(cgroup) {
            var look = pollfd(fd: events.descriptor, events: Int16(POLLPRI), revents: 0)
            while (try? events.read())?.isPopulated == true, poll(&look, 1, 1_000) > 0 {}
        }
        for _ in 0..<1_000 where rmdir(cgroup.directory) != 0 && errno == EBUSY { sched_yield() }
    }

    /// Moves a process into it.
    public func take(_ pid: Int32) throws { try write("\(pid)", to: "cgroup.procs") }

    /// Sends SIGKILL to every process in it and below.
    public func kill() throws { try write("1", to: "cgroup.kill") }

    /// Whether it is frozen although its own cgroup.freeze does not request that.
    public var isFrozenByAncestor: Bool { get throws { try cgroup.isFrozen() && !cgroup.wantsFrozen() } }

    private func write(_ text: String, to name: String) throws {
        let file = open("\(cgroup.directory)/\(name)", O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { throw TestFailure("open \(name): \(errno)") }
        defer { close(file) }
        guard Glibc.write(file, text, text.utf8.count) == text.utf8.count else {
            throw TestFailure("write \(text) to \(name): \(errno)")
        }
    }

    /// The cgroup of this process, if processes can be moved there.
    public static let base: Cgroup? = {
        guard let hierarchy = UnifiedHierarchy.find() else { return nil }
        return try? Cgroup.of(getpid(), in: hierarchy)
    }()
}

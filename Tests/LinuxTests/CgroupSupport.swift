import Foundation
import Glibc

@testable import Linux

/// A cgroup of the test's own; with what is in it ended and removed when let go.
final class TestCgroup {
    let cgroup: Cgroup

    /// Below our own cgroup, with a name that nobody else has, that begins with `name`.
    convenience init(_ name: String = "linux-tests") throws {
        guard let base = Self.base else { throw Trouble("no cgroup2") }
        try self.init("\(name)-\(UUID().uuidString)", below: base)
    }

    init(_ name: String, below parent: Cgroup) throws {
        guard let cgroup = Cgroup(path: "\(parent.isRoot ? "" : parent.path)/\(name)", in: parent.hierarchy)
        else { throw Trouble("no cgroup's name: \(name)") }
        self.cgroup = cgroup
        guard mkdir(cgroup.directory, 0o755) == 0 else { throw Trouble("mkdir \(cgroup): \(errno)") }
    }

    deinit {
        try? cgroup.kill()
        try? cgroup.thaw()
        // The dead leave a moment after the kill.
        _ = eventually { (try? cgroup.events().isPopulated) != true }
        _ = eventually { rmdir(cgroup.directory) == 0 || errno != EBUSY }
    }

    /// Moves a process into it.
    func take(_ pid: Int32) throws {
        let file = open(cgroup.directory + "/cgroup.procs", O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { throw Trouble("open cgroup.procs: \(errno)") }
        defer { close(file) }
        let text = Array("\(pid)".utf8)
        guard write(file, text, text.count) == text.count else { throw Trouble("move \(pid): \(errno)") }
    }

    private static let base: Cgroup? = {
        guard let hierarchy = try? UnifiedHierarchy.find() else { return nil }
        return try? Cgroup.of(getpid(), in: hierarchy)
    }()
}

extension Machine {
    /// Whether cgroups can be made and processes moved: root, and a mount of cgroup2 that is writable.
    static let canMakeCgroups = (try? TestCgroup("linux-tests-probe")) != nil
}

/// Waits until `cgroup.events` changes; false after half a minute: a bound for a broken test.
func changed(_ events: CgroupEvents) -> Bool {
    var look = pollfd(fd: events.descriptor, events: Int16(POLLPRI), revents: 0)
    while true {
        let result = poll(&look, 1, 30_000)
        if result < 0, errno == EINTR { continue }
        return result > 0 && look.revents & Int16(POLLPRI) != 0
    }
}

/// What a poll for POLLPRI says right now.
func readiness(_ events: CgroupEvents) -> Int32 {
    var look = pollfd(fd: events.descriptor, events: Int16(POLLPRI), revents: 0)
    poll(&look, 1, 0)
    return Int32(look.revents)
}

/// Reads until the events are as awaited, each time after a notification.
func awaited(_ events: CgroupEvents, _ condition: (Cgroup.Events) -> Bool) throws -> Bool {
    while try !condition(events.read()) {
        guard changed(events) else { return false }
    }
    return true
}

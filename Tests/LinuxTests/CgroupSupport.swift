import Glibc
import TestSupport

@testable import Linux

extension Machine {
    /// Whether cgroups can be made and processes moved: requires root and a writable mount of cgroup2.
    static let canMakeCgroups = TestCgroup.isAvailable
}

/// Waits until `cgroup.events` changes; false after five minutes: a bound for a broken test.
func changed(_ events: CgroupEvents) -> Bool {
    var look = pollfd(fd: events.descriptor, events: Int16(POLLPRI), revents: 0)
    while true {
        let result = poll(&look, 1, 300_000)
        if result < 0, errno == EINTR { continue }
        return result > 0 && look.revents & Int16(POLLPRI) != 0
    }
}

/// Reads until the events are as expected, each time after a notification.
func awaited(_ events: CgroupEvents, _ condition: (Cgroup.Events) -> Bool) throws -> Bool {
    while try !condition(events.read()) {
        guard changed(events) else { return false }
    }
    return true
}

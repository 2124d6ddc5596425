import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("CgroupEvents", .enabled(if: Machine.canMakeCgroups, "needs root and a writable cgroup2"))
struct CgroupEventsTests {
    @Test("a new watch is not ready; it is ready for POLLPRI only from a change to the next read")
    func readiness() throws {
        let own = try TestCgroup()
        let child = try Child.idle()
        try own.take(child.pid)
        let events = try CgroupEvents(own.cgroup)
        let before = try events.read()
        #expect(before == Cgroup.Events(isPopulated: true, isFrozen: false))
        #expect(LinuxTests.readiness(events) == 0)

        try own.cgroup.freeze()
        #expect(changed(events))
        // Not read yet: still ready, with POLLERR, which is not a failure.
        #expect(LinuxTests.readiness(events) == POLLPRI | POLLERR)
        #expect(try awaited(events) { $0.isFrozen })
        #expect(LinuxTests.readiness(events) == 0)

        try own.cgroup.thaw()
        #expect(changed(events))
        #expect(try awaited(events) { !$0.isFrozen })
    }

    @Test("the end of the last process is reported")
    func populated() throws {
        let own = try TestCgroup()
        let child = try Child.idle()
        try own.take(child.pid)
        let events = try CgroupEvents(own.cgroup)
        Glibc.kill(child.pid, SIGKILL)
        #expect(try awaited(events) { !$0.isPopulated })
    }

    @Test("a freeze of an ancestor is reported below, whichever process wrote it")
    func ancestor() throws {
        let own = try TestCgroup()
        let below = try TestCgroup("below", below: own.cgroup)
        let child = try Child.idle()
        try below.take(child.pid)
        let events = try CgroupEvents(below.cgroup)
        try own.cgroup.freeze()
        #expect(try awaited(events) { $0.isFrozen })
        #expect(try below.isFrozenByAncestor)
    }

    @Test("reading the events of a removed cgroup gives ENODEV")
    func removed() throws {
        let own = try TestCgroup()
        let events = try CgroupEvents(own.cgroup)
        #expect(rmdir(own.cgroup.directory) == 0)
        #expect(failure { try events.read() }?.errno == ENODEV)
    }
}

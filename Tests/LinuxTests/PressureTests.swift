import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Memory pressure")
struct PressureTests {
    private let pressure = "/proc/pressure/memory"

    @Test(
        "a real stall fires the machine's and the cgroup's trigger once, and the totals grow",
        .enabled(if: Machine.canLimitMemory && Machine.hasPressure, "needs root, a memory controller, PSI"),
        .enabled(if: Machine.hasPython, "needs python3"))
    func stall() throws {
        let staller = try Staller()
        let threshold = try #require(PressureThreshold(.some, stall: 10_000, window: 2_000_000))
        let machine = try PressureTrigger(path: pressure, threshold)
        let ownPath = "\(staller.limit.own.cgroup.directory)/memory.pressure"
        let own = try PressureTrigger(path: ownPath, threshold)
        let file = try PressureFile(path: pressure)
        let ownFile = try PressureFile(path: ownPath)
        let before = (try file.read(), try ownFile.read())
        staller.begin()
        #expect(awaitPriority(machine.descriptor) == POLLPRI)
        #expect(awaitPriority(own.descriptor) == POLLPRI)
        // The poll has consumed it; the next event comes in another window, which may begin at any moment.
        var look = pollfd(fd: own.descriptor, events: Int16(POLLPRI), revents: 0)
        #expect(eventually { poll(&look, 1, 0) == 0 })
        #expect(try file.read().some > before.0.some)
        #expect(try ownFile.read().some >= before.1.some + 10_000)
    }

    @Test(
        "the trigger of a removed cgroup gives POLLERR, and its file gives ENODEV",
        .enabled(if: Machine.canMakeCgroups && Machine.hasPressure, "needs root, cgroup2, PSI"))
    func gone() throws {
        let own = try TestCgroup()
        let path = "\(own.cgroup.directory)/memory.pressure"
        let threshold = try #require(PressureThreshold(.some, stall: 10_000, window: 2_000_000))
        let trigger = try PressureTrigger(path: path, threshold)
        let file = try PressureFile(path: path)
        #expect(rmdir(own.cgroup.directory) == 0)
        #expect(awaitPriority(trigger.descriptor) & POLLERR != 0)
        #expect(failure { _ = try file.read() }?.errno == ENODEV)
    }
}

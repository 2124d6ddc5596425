import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Memory pressure")
struct PressureTests {
    private let pressure = "/proc/pressure/memory"

    @Test("thresholds are limited to what the kernel accepts from an unprivileged process")
    func thresholds() {
        #expect(
            PressureThreshold(.some, stall: 70_000, window: 1_000_000)?.description == "some 70000 1000000")
        #expect(PressureThreshold(.full, stall: 500_000, window: 500_000) != nil)
        #expect(PressureThreshold(.full, stall: 10_000_000, window: 10_000_000) != nil)
        #expect(PressureThreshold(.some, stall: 1, window: 499_999) == nil)
        #expect(PressureThreshold(.some, stall: 1, window: 10_000_001) == nil)
        #expect(PressureThreshold(.some, stall: 0, window: 1_000_000) == nil)
        #expect(PressureThreshold(.some, stall: 1_000_001, window: 1_000_000) == nil)
    }

    @Test(
        "without privilege a threshold keeps its share of the next multiple of two seconds",
        arguments: [
            (70_000, 1_000_000, 140_000, 2_000_000), (500_000, 500_000, 2_000_000, 2_000_000),
            (1, 9_999_999, 1, 10_000_000), (70_000, 4_000_000, 70_000, 4_000_000),
            (9_000_000, 9_000_000, 10_000_000, 10_000_000),
        ] as [(UInt32, UInt32, UInt32, UInt32)])
    func scaled(stall: UInt32, window: UInt32, scaledStall: UInt32, scaledWindow: UInt32) throws {
        let threshold = try #require(PressureThreshold(.full, stall: stall, window: window))
        #expect(
            threshold.unprivileged == PressureThreshold(.full, stall: scaledStall, window: scaledWindow))
    }

    @Test("the file's text is parsed, also when it is truncated")
    func parsing() {
        let some = "some avg10=1.05 avg60=0.17 avg300=1.11 total=58761459\n"
        let full = "full avg10=100.00 avg60=0.00 avg300=0.00 total=7\n"
        let expected = PressureFile.Figures(some: 58_761_459, full: 7)
        #expect(figures(some + full) == expected)
        #expect(figures(full + some) == expected)
        #expect(figures(some) == nil)
        #expect(figures(some + "full avg10=0.00 avg60=0.00 avg300=0.00 tot") == nil)
        #expect(figures("") == nil)
    }

    @Test(
        "a trigger is in force as requested, or scaled", .enabled(if: Machine.hasPressure, "no PSI"))
    func set() throws {
        let short = try #require(PressureThreshold(.full, stall: 700_000, window: 1_000_000))
        let trigger = try PressureTrigger(path: pressure, short)
        let mayUseShort = capability(24)
        #expect(trigger.inForce == (mayUseShort ? short : short.unprivileged))
        let even = try #require(PressureThreshold(.some, stall: 70_000, window: 2_000_000))
        #expect(try PressureTrigger(path: pressure, even).inForce == even)
    }

    @Test("a missing file is an error")
    func missing() throws {
        let threshold = try #require(PressureThreshold(.some, stall: 1, window: 2_000_000))
        #expect(failure { _ = try PressureTrigger(path: "/nowhere", threshold) }?.isNoSuchFile == true)
        #expect(failure { _ = try PressureFile(path: "/nowhere") }?.isNoSuchFile == true)
    }

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

    private func figures(_ text: String) -> PressureFile.Figures? {
        var text = text
        return text.withUTF8 { PressureFile.Figures(parsing: UnsafeRawBufferPointer($0)) }
    }
}

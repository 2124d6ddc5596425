import Foundation
import Glibc
import LifeCycle
import Linux
import Testing

@testable import Daemon

/// What is read while memory is short, and how often. The tests use made-up trees.
@Suite("Reading under pressure")
struct PressureReadingTests {
    private final class Tree {
        let root = FileManager.default.temporaryDirectory.path + "/pressure-\(UUID().uuidString)"

        deinit { try? FileManager.default.removeItem(atPath: root) }

        func set(_ name: String, _ text: String) throws {
            let path = "\(root)/\(name)"
            try FileManager.default.createDirectory(
                atPath: String(path.prefix(upTo: path.lastIndex(of: "/") ?? path.startIndex)),
                withIntermediateDirectories: true)
            // In place: the files stay open.
            if let file = FileHandle(forWritingAtPath: path) {
                try file.truncate(atOffset: 0)
                try file.write(contentsOf: Data(text.utf8))
            } else {
                try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            }
        }

        func setAvailable(_ kibibytes: Int) throws {
            try set(
                "meminfo",
                "MemTotal: 4096 kB\nMemAvailable: \(kibibytes) kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
        }

        func makeCgroup(_ name: String, cached: Int) throws -> Cgroup? {
            try set(
                "\(name)/memory.stat",
                "inactive_file \(cached)\nactive_file 0\nworkingset_refault_file 0\n")
            try set("\(name)/memory.pressure", "some avg10=0 avg60=0 avg300=0 total=7\nfull a b c total=0\n")
            return Cgroup(path: "/\(name)", in: UnifiedHierarchy(mountPoint: root))
        }
    }

    @Test("the machine's files are read once in a turn of the loop, however many sources ask")
    func once() throws {
        let tree = Tree()
        try tree.setAvailable(1_024)
        var turn: Microseconds = 1
        let machine = MachineMemory(proc: Proc(root: tree.root)) { turn }
        #expect(machine.figures?.available == 1 << 20)
        try tree.setAvailable(2_048)
        #expect(machine.figures?.available == 1 << 20)
        turn += 1
        #expect(machine.figures?.available == 2 << 20)
        // Made-up trees need not have all files.
        #expect(machine.files == nil && machine.perCPU == 0)
    }

    private static let everybody = PressureSource(path: "/proc/pressure/memory")
    private static let slice = PressureSource(path: "/slice", user: 1000)

    @Test("the search for the front's cgroup is repeated, but not more often than every half second")
    func retries() throws {
        let tree = Tree()
        let sensor = FrontSensor()
        var searches = 0
        var cgroup: Cgroup?
        func read(at now: Microseconds, _ number: UInt32 = 1) -> UInt64? {
            let front = FrontSensor.Front(number: ApplicationNumber(number)) {
                searches += 1
                return cgroup
            }
            return sensor.read(front, of: Self.everybody, at: now)?.cached
        }
        // The search was interrupted.
        for now in [0, 100_000, 499_999] as [Microseconds] { #expect(read(at: now) == nil) }
        #expect(searches == 1)
        cgroup = try tree.makeCgroup("one", cached: 100)
        #expect(read(at: 500_000) == 100 && searches == 2)
        for now in [500_001, 5_000_000] as [Microseconds] { #expect(read(at: now) == 100) }
        #expect(searches == 2, "the files are open")
        // Another application comes to the front.
        cgroup = try tree.makeCgroup("two", cached: 200)
        #expect(read(at: 5_000_001, 2) == 200 && searches == 3)
        #expect(sensor.read(nil, of: Self.everybody, at: 5_000_002) == nil)
        sensor.forget(Self.everybody)
        #expect(read(at: 5_000_003, 2) == 200 && searches == 4)
    }

    @Test("two sources with a front each keep both open, and the one that is over closes only its own")
    func twoFronts() throws {
        let tree = Tree()
        let sensor = FrontSensor()
        let one = try tree.makeCgroup("one", cached: 100)
        let two = try tree.makeCgroup("two", cached: 200)
        var searches = 0
        func read() -> [UInt64?] {
            let fronts = [(Self.everybody, one), (Self.slice, two)]
            return fronts.enumerated().map { index, front in
                sensor.read(
                    FrontSensor.Front(number: ApplicationNumber(UInt32(index))) {
                        searches += 1
                        return front.1
                    }, of: front.0, at: 0)?.cached
            }
        }
        for _ in 0..<3 { #expect(read() == [100, 200]) }
        #expect(searches == 2)
        sensor.forget(Self.slice)
        #expect(read() == [100, 200] && searches == 3)
    }

    @Test("files that can no longer be read are closed, and searched for again after half a second")
    func moved() throws {
        let tree = Tree()
        let sensor = FrontSensor()
        let cgroup = try tree.makeCgroup("one", cached: 100)
        func read(at now: Microseconds) -> UInt64? {
            let front = FrontSensor.Front(number: ApplicationNumber(1)) { cgroup }
            return sensor.read(front, of: Self.everybody, at: now)?.cached
        }
        #expect(read(at: 0) == 100)
        try tree.set("one/memory.stat", "")
        #expect(read(at: 1_000_000) == nil)
        _ = try tree.makeCgroup("one", cached: 300)
        #expect(read(at: 1_499_999) == nil)
        #expect(read(at: 1_500_000) == 300)
    }
}

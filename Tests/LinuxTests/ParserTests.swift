import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

/// Calls `body` with the bytes of the text.
private func bytes<Value>(_ text: String, _ body: (UnsafeRawBufferPointer) -> Value) -> Value {
    Array(text.utf8).withUnsafeBytes(body)
}

@Suite("Parsers, on made-up text")
struct ParserTests {
    static let line =
        "12 (a) b) T 1 2 3 34816 5 4194304 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21 22\n"

    @Test("a stat line is parsed")
    func stat() throws {
        let stat = try #require(bytes(Self.line) { Proc.Stat(parsing: $0) })
        #expect(stat.pid == 12)
        #expect(stat.comm == "a) b")
        #expect(stat.state == .stopped)
        #expect(stat.parent == 1)
        #expect(stat.session == 3)
        #expect(stat.flags == 4_194_304)
        #expect(stat.startTime == 4242)
        #expect(stat.identity == ProcessIdentity(pid: 12, startTime: 4242))
    }

    @Test("a stat line that is truncated before the end of its start time is refused")
    func truncatedStat() throws {
        let whole = Array(Self.line.utf8)
        let end = try #require(Self.line.range(of: " 4242 ")).upperBound
        let needed = Self.line.utf8.distance(from: Self.line.startIndex, to: end)
        for count in 0..<needed {
            let cut = Array(whole[..<count])
            #expect(cut.withUnsafeBytes { Proc.Stat(parsing: $0) } == nil, "\(count) bytes")
        }
        #expect(Array(whole[..<needed]).withUnsafeBytes { Proc.Stat(parsing: $0) }?.startTime == 4242)
    }

    @Test(
        "letters of states are decoded",
        arguments: [
            ("R", Proc.Stat.State.running), ("S", .sleeping), ("D", .diskSleep), ("T", .stopped),
            ("t", .tracingStop), ("Z", .zombie), ("X", .dead), ("x", .dead), ("I", .idle),
            ("P", .other(UInt8(ascii: "P"))),
        ])
    func states(letter: String, state: Proc.Stat.State) throws {
        #expect(Proc.Stat.State(letter: try #require(letter.utf8.first)) == state)
    }

    @Test("a made-up tree is read with complete, truncated and missing files")
    func tree() throws {
        let status = """
            Name:\ta\\nUid:\t5\t5\t5\t5
            Tgid:\t7
            Pid:\t8
            PPid:\t1
            TracerPid:\t3
            Uid:\t1000\t0\t1000\t1000
            Groups:\t\(String(repeating: "4294967294 ", count: 20_000))
            NSpid:\t8\t2\t1
            Kthread:\t1
            VmPeak:\t  100 kB
            """
        let tree = try MadeUpTree([
            "8/task/8/stat": "8 (x) R 1 8",
            "8/status": status,
            "8/statm": "100 25 3\n",
            "8/cgroup": "12:cpu:/a\n0::/user.slice/a:b c\n",
            "9/task/9/stat": "",
            "9/status": "Name:\tx\nTgid:\t9\n",
            "9/statm": "100",
            "9/cgroup": "12:cpu:/a\n",
            "10/other": "",
            "11/task/11/stat": "11 (p) S 1 11 11 0 -1 0 7 8 9 10 11 12 13 14 15 16 17 18 100 20\n",
            "12/task/12/stat": "12 (c) S 11 11 11 0 -1 0 7 8 9 10 11 12 13 14 15 16 17 18 200 20\n",
            "13/task/13/stat": "13 (c) S 12 11 11 0 -1 0 7 8 9 10 11 12 13 14 15 16 17 18 150 20\n",
            "13/task/13/children": "14 15 ",
        ])
        let proc = Proc(root: tree.root)
        #expect(failure { _ = try proc.stat(8) }?.errno == EBADMSG)
        #expect(failure { _ = try proc.stat(9) }?.errno == EBADMSG)
        #expect(failure { _ = try proc.stat(10) }?.isNoSuchFile == true)
        #expect(failure { _ = try proc.stat(99) }?.isNoSuchProcess == true)
        #expect(failure { _ = try proc.stat(-1) }?.isNoSuchProcess == true)
        #expect(
            try proc.status(8)
                == Proc.Status(
                    owner: Proc.Owner(real: 1000, effective: 0, saved: 1000, filesystem: 1000),
                    threadGroup: 7,
                    parent: 1, namespaceDepth: 3, tracer: 3))
        #expect(failure { _ = try proc.status(9) }?.errno == EBADMSG)
        #expect(try proc.residentBytes(8) == 25 * UInt64(sysconf(Int32(_SC_PAGESIZE))))
        #expect(failure { _ = try proc.residentBytes(9) }?.errno == EBADMSG)
        #expect(try proc.unifiedCgroup(of: 8) == "/user.slice/a:b c")
        #expect(try proc.unifiedCgroup(of: 9) == nil)
        #expect(failure { _ = try proc.unifiedCgroup(of: 10) }?.isNoSuchFile == true)
        #expect(try proc.processes().sorted() == [8, 9, 10, 11, 12, 13])
        #expect(!proc.isInitialPIDNamespace)
        // Without a `children` file the scan finds it.
        #expect(proc.children(of: ProcessIdentity(pid: 11, startTime: 100)).map(\.pid) == [12])
        // A parent that is younger than its child has the reused id of an ended process.
        #expect(proc.lineage(of: 12).map(\.pid) == [12, 11])
        #expect(proc.lineage(of: 13).map(\.pid) == [13])
    }

    @Test(
        "a process of which only some threads were looked at, all of them zombies, is no zombie",
        arguments: [100, 200])
    func zombieThreads(_ count: Int32) throws {
        var files: [String: String] = [:]
        for thread in 8..<(8 + count) {
            files["8/task/\(thread)/stat"] =
                "\(thread) (x) Z 1 8 8 0 -1 0 7 8 9 10 11 12 13 14 15 16 17 18 100 20\n"
        }
        let tree = try MadeUpTree(files)
        let process = ProcessIdentity(pid: 8, startTime: 100)
        #expect(try Proc(root: tree.root).state(of: process) == (count == 100 ? .zombie : .running))
    }

    @Test("the tracepoint's format is parsed")
    func format() throws {
        func offset(of field: String, in format: String) throws(KernelFailure) -> Int {
            try Tracepoint(name: "signal:signal_generate", id: 212, format: format).offset(of: field)
        }
        #expect(try offset(of: "sig", in: signalGenerateFormat) == 8)
        #expect(try offset(of: "pid", in: signalGenerateFormat) == 36)
        let wide = signalGenerateFormat.replacingOccurrences(
            of: "offset:36;\tsize:4", with: "offset:36;\tsize:8")
        for format in ["", wide, "field:pid_t pid;", "field:pid_t pid;\toffset:-4;\tsize:4;"] {
            #expect(failure { _ = try offset(of: "pid", in: format) }?.errno == EBADMSG)
        }
        let moved = signalGenerateFormat.replacingOccurrences(of: "offset:36", with: "offset:52")
        #expect(try offset(of: "pid", in: moved) == 52)
    }

    @Test(
        "lists of CPUs are parsed",
        arguments: [
            ("0\n", [0] as [Int32]?), ("0-3\n", [0, 1, 2, 3]), ("0,2-3,8\n", [0, 2, 3, 8]), ("3-1", nil),
            ("-1", nil), ("a", nil), ("0-99999999", nil), ("1-2-3", nil), ("", []),
        ])
    func cpus(text: String, list: [Int32]?) {
        #expect(CPUList.parse(text) == list)
    }

    @Test("records that wrap around the end of the ring are read completely")
    func wrap() {
        for start in stride(from: UInt64(0), to: 512, by: 8) {
            var ring = [UInt8](repeating: 0, count: 256)
            var position = start
            var expected: [[UInt8]] = []
            for (index, length) in [16, 72, 8, 40].enumerated() {
                var record = [UInt8](repeating: UInt8(index + 1), count: length)
                record.replaceSubrange(
                    0..<8, with: [UInt8(index), 0, 0, 0, 0, 0, UInt8(length), 0])
                for byte in record {
                    ring[Int(position % 256)] = byte
                    position += 1
                }
                expected.append([UInt8(index)] + record[8...])
            }
            var seen: [[UInt8]] = []
            let whole = ring.withUnsafeBytes { memory in
                PerfRecords(ring: memory).forEach(from: start, to: position) { type, body in
                    seen.append([UInt8(type)] + Array(body))
                }
            }
            #expect(whole)
            #expect(seen == expected)
        }
    }

    @Test("a ring without valid records is reported as lost and not read")
    func brokenRing() {
        var ring = [UInt8](repeating: 0, count: 256)
        func walk(_ tail: UInt64, _ head: UInt64) -> Bool {
            ring.withUnsafeBytes { PerfRecords(ring: $0).forEach(from: tail, to: head) { _, _ in } }
        }
        #expect(walk(0, 0))
        // A length of zero, less than a header, and more than there is.
        #expect(!walk(0, 8))
        ring[6] = 7
        #expect(!walk(0, 8))
        ring[6] = 16
        #expect(!walk(0, 8))
        #expect(!walk(0, 4))
        // More than the ring, and backwards.
        #expect(!walk(0, 257))
        #expect(!walk(8, 0))
    }
}

@Suite("Parsers, on noise")
struct FuzzTests {
    @Test("no input traps, and parsed input can be written again")
    func noise() {
        let seed = UInt64.random(in: .min ... .max)
        print("seed of the noise: \(seed)")
        var random = SplitMix(state: seed)
        let base = Array(ParserTests.line.utf8)
        var read = 0
        for _ in 0..<20_000 {
            // A valid line with some bytes changed, truncated, or pure noise.
            var input = base
            for _ in 0..<Int.random(in: 0...4, using: &random) {
                input[Int.random(in: 0..<input.count, using: &random)] = random.byte()
            }
            if Bool.random(using: &random) {
                input.removeLast(Int.random(in: 0...input.count, using: &random))
            }
            if Int.random(in: 0..<4, using: &random) == 0 {
                input = (0..<Int.random(in: 0...600, using: &random)).map { _ in random.byte() }
            }
            input.withUnsafeBytes { bytes in
                if let stat = Proc.Stat(parsing: bytes) {
                    read += 1
                    #expect(stat.comm.utf8.count <= 3 * bytes.count, "seed \(seed)")
                }
                var lines = StatusLines()
                for prefix in ["Uid:", "NSpid:", "Tgid:", "PPid:", "TracerPid:"] {
                    Array(prefix.utf8 + input).withUnsafeBytes { bytes in
                        var line = Bytes(bytes)
                        _ = lines.take(&line)
                    }
                }
                if let status = lines.status {
                    #expect(status.namespaceDepth >= 1, "seed \(seed)")
                }
                _ = PerfRecord(bytes)?.field(at: 36)
            }
            let text = String(decoding: input, as: UTF8.self)
            _ = CPUList.parse(text)
            _ = try? Tracepoint(name: "", id: 0, format: "field:int sig;" + text).offset(of: "sig")
            let ring = (0..<256).map { _ in random.byte() & (Bool.random(using: &random) ? 0x1F : 0xFF) }
            ring.withUnsafeBytes { memory in
                let tail = UInt64.random(in: 0...1000, using: &random)
                let head = tail + UInt64.random(in: 0...300, using: &random)
                var total = 0
                let whole = PerfRecords(ring: memory).forEach(from: tail, to: head) { total += 8 + $1.count }
                #expect(UInt64(total) <= head - tail, "seed \(seed)")
                #expect(!whole || UInt64(total) == head - tail, "seed \(seed)")
            }
        }
        #expect(read > 100, "seed \(seed)")
    }
}

/// A small generator whose seed determines the whole run (SplitMix64).
struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    mutating func byte() -> UInt8 { UInt8(truncatingIfNeeded: next()) }
}

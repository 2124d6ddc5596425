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
        var random = Generator(seed: seed)
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
                        _ = lines.parse(&line)
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

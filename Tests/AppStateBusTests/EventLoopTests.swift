import AppStateBus
import Glibc
import TestSupport
import Testing

@Suite struct EventLoopTests {
    @Test func aDescriptorIsReportedReadableAndHungUp() throws {
        let loop = try EventLoop()
        let pipe = try PipeEnds()
        var seen: [Readiness] = []
        let source = try loop.watch(pipe.read) { seen.append($0) }
        #expect(try loop.runOnce(timeout: 0) == false)
        #expect(write(pipe.write, "x", 1) == 1)
        #expect(try loop.runOnce(timeout: nil))
        #expect(seen == [.readable])
        var byte: UInt8 = 0
        #expect(read(pipe.read, &byte, 1) == 1)
        close(pipe.takeWrite())
        #expect(try loop.runOnce(timeout: nil))
        #expect(seen.last?.contains(.hangUp) == true)
        source.cancel()
        #expect(try loop.runOnce(timeout: 0) == false)
    }

    @Test func aSourceMayEndItselfInItsHandler() throws {
        let loop = try EventLoop()
        let pipe = try PipeEnds()
        var calls = 0
        var source: Source?
        source = try loop.watch(pipe.write, for: .writable) { readiness in
            #expect(readiness == .writable)
            calls += 1
            source?.cancel()
            source = nil
        }
        #expect(try loop.runOnce(timeout: nil))
        #expect(try loop.runOnce(timeout: 0) == false)
        #expect(calls == 1)
        #expect(source == nil)
    }

    @Test func aDescriptorThatCannotBeWatchedIsAFailure() throws {
        let loop = try EventLoop()
        #expect(throws: BusFailure.self) { try loop.watch(-1) { _ in } }
    }
}

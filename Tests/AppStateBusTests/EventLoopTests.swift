import AppStateBus
import Glibc
import TestSupport
import Testing

@Suite struct EventLoopTests {
    @Test func aTimerFiresAtItsTimeAndNotBefore() throws {
        let loop = try EventLoop()
        let start = loop.now
        let hour: UInt64 = 3_600_000_000
        var order: [String] = []
        let later = try loop.timer {
            order.append("later")
            loop.exit(code: 7)
        }
        let sooner = try loop.timer {
            order.append("sooner")
            #expect(loop.now >= start + 2_000)
            // Replaces the time that it was armed for.
            later.arm(at: start + 1_000)
        }
        later.arm(at: start + hour)
        sooner.arm(at: start + 2_000)
        var handled: [Int] = []
        #expect(try loop.run { handled.append(order.count) } == 7)
        #expect(order == ["sooner", "later"])
        // Not after the one that has ended the loop.
        #expect(handled == [0, 1])
        // Harmless after the loop has ended.
        sooner.arm(at: 0)
        sooner.disarm()
    }

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

    @Test func aSignalIsHandledInTheLoop() throws {
        let loop = try EventLoop()
        var signals = 0
        let source = try loop.onSignal(SIGUSR2) {
            signals += 1
            loop.exit(code: 0)
        }
        // To this thread only: other threads of the test runner have not blocked the signal.
        #expect(pthread_kill(pthread_self(), SIGUSR2) == 0)
        #expect(try loop.run() == 0)
        #expect(signals == 1)
        source.cancel()
    }
}

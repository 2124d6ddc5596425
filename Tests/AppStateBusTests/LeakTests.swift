import AppStateBus
import Glibc
import TestSupport
import Testing

@Suite(.enabled(if: hasBus, noBus)) struct LeakTests {
    /// Calls `gone` when it is released.
    private final class Captured {
        let gone: () -> Void
        init(_ gone: @escaping () -> Void) { self.gone = gone }
        deinit { gone() }
    }

    @Test func aCallLetsItsHandlerGoWhenItIsAnswered() throws {
        let peers = try Peers()
        try peers.serve(Method("Now") { call in try call.reply() })
        var (heard, gone) = (false, false)
        var capture: Captured? = Captured { gone = true }
        let slot = try peers.client.callAsync(peers.newCall("Now")) { [capture] _ in
            withExtendedLifetime(capture) { heard = true }
        }
        capture = nil
        #expect(!gone)
        try peers.run { heard }
        #expect(gone)
        slot.cancel()
    }

    @Test func sourcesAndTimersLeaveNothing() throws {
        var captured = 0
        do {
            let loop = try EventLoop()
            let pipe = try PipeEnds()
            var timers: [AppStateBus.Timer] = []
            for _ in 0..<100 {
                captured += 2
                let capture = Captured { captured -= 1 }
                timers.append(try loop.timer { _ = capture })
                timers.last?.arm(at: 0)
                let duplicate = fcntl(pipe.write, F_DUPFD_CLOEXEC, 3)
                let other = Captured { captured -= 1 }
                let source = try loop.watch(duplicate, for: .writable) { _ in _ = other }
                try loop.runOnce(timeout: 0)
                source.cancel()
                close(duplicate)
            }
            #expect(captured == 100)
            for timer in timers.prefix(50) {
                timer.cancel()
            }
            #expect(captured == 50)
        }
        #expect(captured == 0)
    }
}

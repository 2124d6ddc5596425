import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

/// Runs `body` on its own thread and waits for it.
func onThread<Value: Sendable>(_ body: @escaping @Sendable () -> Value) throws -> Value {
    let pipe = try PipeEnds()
    let result = Result()
    let write = pipe.takeWrite()
    Thread.detachNewThread {
        result.lock.withLock { result.value = body() }
        close(write)
    }
    var byte: UInt8 = 0
    _ = read(pipe.read, &byte, 1)
    let value = result.lock.withLock { result.value as? Value }
    return try #require(value)
}

private final class Result: @unchecked Sendable {
    let lock = NSLock()
    var value: Any?
}

@Suite(.enabled(if: hasBus, noBus)) struct LeakTests {
    /// Calls `gone` when it is released.
    private final class Captured {
        let gone: () -> Void
        init(_ gone: @escaping () -> Void) { self.gone = gone }
        deinit { gone() }
    }

    @Test func tenThousandMixedCallsLeaveNothing() throws {
        var captured = 0
        try mixedCalls {
            captured -= 1
        } made: {
            captured += 1
        }
        #expect(captured == 0)
    }

    private func mixedCalls(gone: @escaping () -> Void, made: () -> Void) throws {
        let peers = try Peers()
        var kept: [PendingCall] = []
        try peers.serve(
            Method("Echo", in: [("s", "s")], out: [("s", "s")]) { call in
                let text = try call.message.readString()
                try call.reply { try $0.append(text) }
            },
            Method("Fail", in: [("s", "s")]) { call in call.fail(.failed("on purpose")) },
            Method("Throw", in: [("s", "s")]) { _ in throw MethodError.failed("on purpose") },
            Method("Later", in: [("s", "s")], out: [("s", "s")]) { call in
                kept.append(call.deferred())
                if kept.count > 5 {
                    kept.removeFirst().reply { try $0.append("late") }
                }
            },
            Method("Dropped", in: [("s", "s")]) { call in _ = call.deferred() },
            Method("Wrong", in: [("s", "s")]) { call in _ = try call.message.readUInt32() },
            Method("Cancel", in: [("s", "s")]) { call in try call.reply() },
            properties: [Property("Text", "s") { message, _ in try message.append("text") }])
        var ticks = 0
        let filter = try peers.service.addFilter { _ in false }
        let match = try peers.client.match("type='signal',member='Tick'", failed: unexpected) { _ in
            ticks += 1
        }
        let members = [
            "Echo", "Fail", "Throw", "Later", "Dropped", "Wrong", "Unknown", "Cancel", "Echo", "Get",
        ]
        var answered = 0
        var expected = 0
        var slots: [Slot] = []
        for round in 1...1_000 {
            for member in members {
                let isProperty = member == "Get"
                let call = try peers.newCall(
                    member, interface: isProperty ? "org.freedesktop.DBus.Properties" : Peers.interface)
                try call.append(isProperty ? Peers.interface : "text")
                if isProperty { try call.append("Text") }
                made()
                let capture = Captured(gone)
                let slot = try peers.client.callAsync(call) { _ in
                    withExtendedLifetime(capture) { answered += 1 }
                }
                if member == "Cancel" {
                    slot.cancel()
                } else {
                    expected += 1
                    slots.append(slot)
                }
            }
            let signal = try peers.service.newSignal(
                path: Peers.path, interface: Peers.interface, member: "Tick", to: peers.client.uniqueName)
            try peers.service.send(signal)
            try peers.run { answered == expected - kept.count && ticks == round }
        }
        #expect(kept.count == 5)
        filter.cancel()
        match.cancel()
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

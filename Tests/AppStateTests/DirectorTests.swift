import Testing

@testable import AppState

/// The queue behind a callback that takes long.
@Suite("The queue of callbacks")
@MainActor
struct DirectorTests {
    /// Keeps a director busy until it is released.
    @MainActor
    private final class Gate {
        var continuation: CheckedContinuation<Void, Never>?
        var isOpen = false

        func wait() async {
            if !isOpen { await withCheckedContinuation { continuation = $0 } }
        }

        func open() {
            isOpen = true
            continuation?.resume()
        }
    }

    @Test("the queue keeps the shortest walk, the latest event of each kind, and 64 deliveries, in order")
    func bounds() async {
        let director = Director()
        let gate = Gate()
        var told: [String] = []
        director.performLater { await gate.wait() }
        for number in 0..<100 {
            director.shortenEdges { state, serial in told.append("walk \(state) \(serial)") }
            director.perform(.edge(.begin)) { told.append("begin") }
            director.perform(.edge(.change(number % 2 == 0 ? .inactive : .active))) { told.append("change") }
            director.perform(.edge(.end(UInt64(number)))) { told.append("end \(number)") }
            director.perform(.event("memory")) { told.append("memory \(number)") }
            director.perform(.delivery) { told.append("delivery \(number)") }
        }
        #expect(director.count < 64 + 3 + Director.mostEdges + 6)
        gate.open()
        await withCheckedContinuation { done in director.perform { done.resume() } }
        #expect(told.prefix(3) == ["begin", "change", "end 0"])
        #expect(told.filter { $0.hasPrefix("memory") } == ["memory 99"])
        #expect(told.filter { $0.hasPrefix("delivery") } == (36..<100).map { "delivery \($0)" })
        #expect(told.contains { $0.hasPrefix("walk") })
        #expect(told.filter { $0.hasPrefix("end") }.last == "end 99")
        #expect(director.isIdle)
    }
}

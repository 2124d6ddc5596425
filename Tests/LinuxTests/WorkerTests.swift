import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Worker")
struct WorkerTests {
    /// Waits until so many jobs have been completed.
    private func complete(_ worker: Worker, until isDone: () -> Bool) throws {
        while !isDone() {
            guard try ready(worker.descriptor) else { throw Trouble("no results") }
            worker.complete()
        }
    }

    @Test("jobs are done and completed in the order of submission, each once, and completed by the owner")
    func order() throws {
        let worker = try Worker(name: "order")
        let owner = pthread_self()
        var completed: [Int] = []
        for number in 0..<100 {
            worker.run {
                (number * number, pthread_self())
            } then: { square, thread in
                #expect(square == number * number && thread != owner && pthread_self() == owner)
                completed.append(number)
            }
        }
        try complete(worker) { completed.count == 100 }
        #expect(completed == Array(0..<100))
        worker.complete()
        #expect(completed.count == 100)
    }

    @Test("a blocked job delays only the jobs behind it, and counts as hanging")
    func blocking() throws {
        let gate = try PipeEnds()
        let worker = try Worker(name: "blocking")
        #expect(!worker.hangs(longerThan: 0))
        let blocked = gate.read
        var completed: [String] = []
        worker.run {
            waitAt(blocked)
        } then: { _ in
            completed.append("blocked")
        }
        worker.run {
        } then: {
            completed.append("behind")
        }
        worker.complete()
        #expect(completed.isEmpty)
        #expect(worker.wait(until: 0) == false)
        #expect(eventually { worker.hangs(longerThan: 1_000) } && !worker.hangs(longerThan: .max))
        open(gate)
        try complete(worker) { completed.count == 2 }
        #expect(completed == ["blocked", "behind"])
        #expect(!worker.hangs(longerThan: 0))
    }

    @Test("an owner that goes away does not wait for its blocked job; jobs not yet started never start")
    func abandoned() throws {
        let gate = try PipeEnds()
        let done = try PipeEnds()
        let ends = (gate.read, done.write)
        var worker: Worker? = try Worker(name: "abandoned")
        worker?.run { [token = Token(signal: done.write)] in
            defer { withExtendedLifetime(token) {} }
            return waitAt(ends.0)
        } then: { _ in
            Issue.record("completed without an owner")
        }
        worker?.run {
            var mark = UInt8(ascii: "!")
            return write(ends.1, &mark, 1)
        } then: { _ in
            Issue.record("completed without an owner")
        }
        worker = nil
        open(gate)
        // Written when the job, and with it what it holds, is released.
        #expect(try ready(done.read))
        var mark: UInt8 = 0
        #expect(read(done.read, &mark, 1) == 1)
        #expect(mark == UInt8(ascii: "."))
    }

    private func open(_ gate: PipeEnds) {
        var byte: UInt8 = 0
        write(gate.write, &byte, 1)
    }
}

/// Blocks until something is written to the pipe.
private func waitAt(_ gate: Int32) -> Int {
    var byte: UInt8 = 0
    return read(gate, &byte, 1)
}

/// Writes a dot when it is released.
private final class Token: Sendable {
    private let descriptor: Int32
    init(signal descriptor: Int32) { self.descriptor = descriptor }
    deinit {
        var mark = UInt8(ascii: ".")
        write(descriptor, &mark, 1)
    }
}

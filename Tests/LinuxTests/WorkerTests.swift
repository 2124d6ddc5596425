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

    @Test("a job of a completion comes behind the others, and a completion may complete others")
    func nested() throws {
        let worker = try Worker(name: "nested")
        var completed: [Int] = []
        for number in 0..<3 {
            worker.run {
                number
            } then: { number in
                completed.append(number)
                worker.run {
                    number + 10
                } then: {
                    completed.append($0)
                }
                worker.complete()
            }
        }
        try complete(worker) { completed.count == 6 }
        #expect(completed == [0, 1, 2, 10, 11, 12])
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

    @Test("the thread starts with the first job, stays for the next one, and ends with its owner")
    func thread() throws {
        var worker: Worker? = try Worker(name: "lasting")
        #expect(!hasThread("lasting"))
        var threads: [String?] = []
        for round in 1...50 {
            worker?.run {
                try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
            } then: {
                threads.append($0)
            }
            if let worker { try complete(worker) { threads.count == round } }
        }
        #expect(Set(threads).count == 1 && threads[0] != nil && hasThread("lasting"))
        worker = nil
        #expect(eventually { !hasThread("lasting") })
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

    @Test("waiting jobs are released with their owner at once")
    func dropped() throws {
        let gate = try PipeEnds()
        let done = try PipeEnds()
        let blocked = gate.read
        var worker: Worker? = try Worker(name: "dropped")
        worker?.run { waitAt(blocked) }
        worker?.run { [token = Token(signal: done.write)] in
            withExtendedLifetime(token) {}
        }
        worker = nil
        #expect(try ready(done.read))
        open(gate)
    }

    @Test("the thread receives no signals and has its name")
    func mask() throws {
        let worker = try Worker(name: "named")
        var found: String?
        worker.run {
            var mask = sigset_t()
            pthread_sigmask(SIG_BLOCK, nil, &mask)
            let isBlocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGCHLD) == 1
            let comm = (try? TextFile.read("/proc/thread-self/comm")) ?? ""
            return comm + (isBlocked ? "blocked" : "open")
        } then: {
            found = $0
        }
        try complete(worker) { found != nil }
        #expect(found == "named\nblocked")
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

/// Whether this process has a thread with that name.
private func hasThread(_ name: String) -> Bool {
    let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
    return threads.contains { thread in
        (try? String(contentsOfFile: "/proc/self/task/\(thread)/comm", encoding: .utf8)) == name + "\n"
    }
}

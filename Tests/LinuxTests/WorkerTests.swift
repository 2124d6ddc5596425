import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Worker")
struct WorkerTests {
    @Test("results arrive in the order of submission, each once")
    func order() throws {
        let worker = try Worker<Int, Int>(name: "order", limit: 100)
        #expect(!hasThread("order"))
        for number in 0..<100 { #expect(worker.submit(number) { number * number } == .accepted) }
        let finished = try results(of: worker, 100)
        #expect(finished.map(\.key) == Array(0..<100))
        #expect(finished.map(\.value) == finished.map { $0.key * $0.key })
        #expect(worker.takeResults().isEmpty)
        #expect(worker.count == 0)
    }

    @Test("a blocked job delays only the jobs behind it, and too many jobs are refused")
    func blocking() throws {
        let gate = try PipeEnds()
        let worker = try Worker<String, Int>(name: "blocking", limit: 2)
        let blocked = gate.read
        #expect(worker.submit("blocked") { waitAt(blocked) } == .accepted)
        #expect(worker.submit("behind") { 2 } == .accepted)
        #expect(worker.submit("too many") { 3 } == .full)
        #expect(worker.takeResults().isEmpty)
        open(gate)
        #expect(try results(of: worker, 2).map(\.key) == ["blocked", "behind"])
        #expect(worker.submit("again") { 4 } == .accepted)
        // Done, but not collected: it counts.
        #expect(try ready(worker.descriptor))
        #expect(worker.submit("second") { 5 } == .accepted)
        #expect(worker.submit("third") { 6 } == .full)
        #expect(try results(of: worker, 2).map(\.value) == [4, 5])
    }

    @Test("a result states the processor time of its job, not how long the job waited")
    func processorTime() throws {
        let gate = try PipeEnds()
        let worker = try Worker<Int, UInt64>(name: "time", limit: 2)
        let blocked = gate.read
        #expect(
            worker.submit(1) {
                let begin = Clock.threadMicroseconds
                while Clock.threadMicroseconds < begin + 10_000 {}
                return Clock.threadMicroseconds - begin
            } == .accepted)
        let computed = try results(of: worker, 1)[0]
        #expect(computed.processorTime >= computed.value)
        let begin = Clock.monotonicMicroseconds
        #expect(worker.submit(2) { UInt64(waitAt(blocked)) } == .accepted)
        while Clock.monotonicMicroseconds < begin + 50_000 {}
        open(gate)
        let waited = try results(of: worker, 1)[0]
        #expect(waited.processorTime < 50_000)
    }

    @Test("the thread ends when it is idle, and the next job starts another")
    func idle() throws {
        let worker = try Worker<Int, Int32>(name: "idle", limit: 4, idleMilliseconds: 0)
        for round in 0..<50 {
            #expect(worker.submit(round) { 0 } == .accepted)
            #expect(try results(of: worker, 1)[0].key == round)
            if round % 2 == 0 { #expect(eventually { !hasThread("idle") }) }
        }
        let patient = try Worker<Int, Int>(name: "patient", limit: 4, idleMilliseconds: 60_000)
        #expect(patient.submit(0) { 0 } == .accepted)
        _ = try results(of: patient, 1)
        #expect(hasThread("patient"))
    }

    @Test("an owner that goes away does not wait for its blocked job; jobs not yet started never start")
    func abandoned() throws {
        let gate = try PipeEnds()
        let done = try PipeEnds()
        let ends = (gate.read, done.write)
        var worker: Worker<Int, Int>? = try Worker(name: "abandoned", limit: 4)
        _ = worker?.submit(0) { [token = Token(signal: done.write)] in
            defer { withExtendedLifetime(token) {} }
            return waitAt(ends.0)
        }
        _ = worker?.submit(1) {
            var mark = UInt8(ascii: "!")
            return write(ends.1, &mark, 1)
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
        var worker: Worker<Int, Int>? = try Worker(name: "dropped", limit: 4)
        _ = worker?.submit(0) { waitAt(blocked) }
        _ = worker?.submit(1) { [token = Token(signal: done.write)] in
            withExtendedLifetime(token) { 1 }
        }
        worker = nil
        #expect(try ready(done.read))
        open(gate)
    }

    @Test("the thread receives no signals and has its name")
    func thread() throws {
        let worker = try Worker<Int, String>(name: "named", limit: 1)
        _ = worker.submit(0) {
            var mask = sigset_t()
            pthread_sigmask(SIG_BLOCK, nil, &mask)
            let isBlocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGCHLD) == 1
            let comm = (try? TextFile.read("/proc/thread-self/comm")) ?? ""
            return comm + (isBlocked ? "blocked" : "open")
        }
        #expect(try results(of: worker, 1)[0].value == "named\nblocked")
    }

    private func results<Key, Value>(
        of worker: Worker<Key, Value>, _ count: Int
    ) throws -> [Worker<Key, Value>.Finished] {
        var found: [Worker<Key, Value>.Finished] = []
        while found.count < count {
            guard try ready(worker.descriptor) else { throw Trouble("no results") }
            found += worker.takeResults()
        }
        return found
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

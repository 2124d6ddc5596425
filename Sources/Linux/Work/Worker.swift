import Glibc

/// Runs jobs that may block on one other thread, in the order in which they were submitted, and completes them on
/// the thread that owns the worker.
///
/// The thread starts with the first job, and ends with the worker: to end it earlier would wake an idle machine, and
/// would free no memory that matters. Jobs that wait when the owner releases the worker are dropped; nothing waits for
/// one that hangs. For one thread at a time.
public final class Worker {
    private let thread: WorkerThread
    /// Of the jobs that are not completed, in their order.
    private var completions: [() -> Void] = []
    /// When the first of them became the first. CLOCK_MONOTONIC, in microseconds.
    private var firstSince: UInt64 = 0

    /// Written by the job, and read once the thread has counted the job as finished.
    private final class Outcome<Value: Sendable>: @unchecked Sendable {
        var value: Value?
    }

    /// Has no thread yet. Throws errors of eventfd(2), such as `EMFILE`.
    ///
    /// - Parameter name: the thread's name in `/proc/PID/task/*/comm`, where it is cut to 15 bytes.
    public init(name: String) throws(KernelFailure) {
        thread = try WorkerThread(name: name)
    }

    deinit {
        thread.close()
    }

    /// Readable when jobs are finished: poll it for `POLLIN`, and call `complete`. Owned by this value, and closed with
    /// it.
    public var descriptor: Int32 { thread.descriptor }

    /// Queues a job behind the others. If no thread can be started (pthread_create(3), `EAGAIN`), it is done at once.
    ///
    /// - Parameters:
    ///   - job: must not wait for the owner.
    ///   - completion: called by `complete` with the result.
    public func run<Value: Sendable>(
        _ job: @escaping @Sendable () -> Value, then completion: @escaping (Value) -> Void = { _ in }
    ) {
        let outcome = Outcome<Value>()
        if completions.isEmpty { firstSince = Clock.monotonicMicroseconds }
        completions.append {
            if let value = outcome.value { completion(value) }
        }
        let whole: @Sendable () -> Void = { [thread] in
            outcome.value = job()
            thread.noteFinished()
        }
        if thread.submit(whole) != 0 { whole() }
    }

    /// Completes the jobs that are finished, in their order.
    public func complete() {
        for _ in 0..<thread.popFinished() where !completions.isEmpty {
            let completion = completions.removeFirst()
            firstSince = Clock.monotonicMicroseconds
            completion()
        }
    }

    /// Waits until a job is finished.
    ///
    /// - Parameter end: when to give up, CLOCK_MONOTONIC in microseconds.
    /// - Returns: whether `complete` has something to do.
    public func wait(until end: UInt64) -> Bool { thread.wait(until: end) }

    /// Whether one job has taken longer than so many microseconds.
    public func hangs(longerThan span: UInt64) -> Bool {
        !completions.isEmpty && Clock.monotonicMicroseconds - firstSince > span
    }
}

import Glibc

/// Runs jobs that may block on one other thread, in order, and returns the results to the thread that owns
/// the worker.
///
/// The thread starts with the first job and ends after some idle time. When the owner releases the worker,
/// waiting jobs are dropped. Nothing waits for a job that blocks; its thread ends after it. For one thread at
/// a time.
public final class KeyedWorker<Key: Sendable, Value: Sendable> {
    /// A job that is done.
    public struct Finished: Sendable {
        /// The key that it was submitted with.
        public let key: Key
        /// Its result.
        public let value: Value
        /// The processor time that it took, in microseconds.
        public let processorTime: UInt64
    }

    /// What happened to a submitted job.
    public enum Submission: Equatable, Sendable {
        /// It will run after the jobs before it.
        case accepted
        /// There are too many jobs: it is rejected.
        case full
        /// No thread could be started (pthread_create(3), `EAGAIN`): it is rejected.
        case failed(KernelFailure)
    }

    /// How many jobs may be in progress: waiting, running, or done and not collected.
    public let limit: Int
    /// How many jobs are in progress.
    public private(set) var count = 0

    private let thread: WorkerThread
    private let results: Results

    /// Has no thread yet.
    ///
    /// - Parameters:
    ///   - name: the thread's name in `/proc/PID/task/*/comm`, where it is cut to 15 bytes.
    ///   - limit: see the property.
    ///   - idleMilliseconds: the thread ends after this long without a job.
    ///
    /// Throws errors of eventfd(2), such as `EMFILE`.
    public init(name: String, limit: Int, idleMilliseconds: Int = 10_000)
        throws(KernelFailure)
    {
        precondition(limit > 0 && idleMilliseconds >= 0)
        thread = try WorkerThread(name: name, idleMilliseconds: idleMilliseconds)
        results = Results(limit: limit)
        self.limit = limit
    }

    deinit {
        thread.close()
    }

    /// Readable when there are results: poll it for `POLLIN`. Owned by this value, and closed with it.
    public var descriptor: Int32 { thread.descriptor }

    /// Queues a job. It must not wait for the owner.
    public func submit(_ key: Key, _ job: @escaping @Sendable () -> Value) -> Submission {
        guard count < limit else { return .full }
        let failure = thread.submit { [thread, results] in
            let begin = Clock.threadMicroseconds
            let value = job()
            let finished = Finished(
                key: key, value: value, processorTime: Clock.threadMicroseconds - begin)
            thread.withLock { results.finished.append(finished) }
            thread.announce()
        }
        guard failure == 0 else {
            return .failed(KernelFailure(operation: "pthread_create", subject: "worker", errno: failure))
        }
        count += 1
        return .accepted
    }

    /// Waits until a job is done.
    ///
    /// - Parameter end: when to give up, CLOCK_MONOTONIC in microseconds.
    /// - Returns: whether there are results.
    public func wait(until end: UInt64) -> Bool { thread.wait(until: end) }

    /// The jobs that were done since the last call, in the order of submission; the descriptor is no longer readable
    /// until there are more.
    public func takeResults() -> [Finished] {
        // First: a job that ends in between is announced again, or its announcement finds nothing.
        thread.acknowledge()
        let taken = thread.withLock {
            defer { results.finished.removeAll(keepingCapacity: true) }
            return results.finished
        }
        count -= taken.count
        return taken
    }

    /// Guarded by the thread's lock.
    private final class Results: @unchecked Sendable {
        var finished: [Finished] = []

        init(limit: Int) {
            finished.reserveCapacity(limit)
        }
    }
}

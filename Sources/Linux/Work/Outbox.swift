import Glibc

/// Sends, in order and on one other thread, messages that may have to wait until their receiver has room.
///
/// Sending a datagram to a full socket blocks (unix(7)), and other senders to that socket determine for how
/// long. The thread starts with the first job and ends after some idle time. May be used by several threads.
public final class Outbox: @unchecked Sendable {
    /// How many jobs may wait or run.
    public let limit: Int

    private let thread: WorkerThread
    // Guarded by the thread's lock.
    private var count = 0
    private var refused = 0
    private var isAwaited = false

    /// Does not start the thread yet. Throws errors of eventfd(2), such as `EMFILE`.
    ///
    /// - Parameters:
    ///   - name: the thread's name in `/proc/PID/task/*/comm`, where it is cut to 15 bytes.
    ///   - limit: see the property.
    ///   - idleMilliseconds: the thread ends after this long without a job.
    public init(name: String, limit: Int, idleMilliseconds: Int = 10_000) throws(KernelFailure) {
        precondition(limit > 0)
        thread = try WorkerThread(name: name, idleMilliseconds: idleMilliseconds)
        self.limit = limit
    }

    deinit {
        thread.close()
    }

    /// Queues a job behind the earlier jobs.
    ///
    /// - Returns: whether it will run; if not, it is counted as refused, and released.
    @discardableResult
    public func post(_ job: @escaping @Sendable () -> Void) -> Bool {
        let hasRoom = thread.withLock {
            guard count < limit else {
                refused += 1
                return false
            }
            count += 1
            return true
        }
        guard hasRoom else { return false }
        let failure = thread.submit { [weak self] in
            job()
            self?.finished()
        }
        guard failure == 0 else {
            thread.withLock {
                count -= 1
                refused += 1
            }
            return false
        }
        return true
    }

    /// How many jobs were refused since the last call.
    public func takeRefused() -> Int {
        thread.withLock {
            defer { refused = 0 }
            return refused
        }
    }

    /// Waits until all jobs have run, for a program that is about to end.
    ///
    /// - Parameter milliseconds: how long to wait at most.
    /// - Returns: whether they have run.
    @discardableResult
    public func flush(milliseconds: Int32) -> Bool {
        let end = Clock.monotonicMicroseconds + UInt64(max(0, milliseconds)) * 1_000
        while true {
            let isEmpty = thread.withLock {
                isAwaited = count > 0
                return count == 0
            }
            guard !isEmpty, thread.wait(until: end) else { return isEmpty }
            thread.acknowledge()
        }
    }

    private func finished() {
        let tells = thread.withLock {
            count -= 1
            return isAwaited && count == 0
        }
        if tells { thread.announce() }
    }
}

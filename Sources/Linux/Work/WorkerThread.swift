import CLinux
import Glibc

/// The thread of a `Worker`, and its queue.
///
/// It retains itself while its thread runs; nothing ever waits for the thread.
final class WorkerThread: @unchecked Sendable {
    /// The thread's name in `/proc/PID/task/*/comm`, where it is cut to 15 bytes.
    private let name: String
    /// Written to when a job is done: an eventfd(2).
    private let finished: Descriptor

    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    // Guarded by the mutex.
    private var queue: [@Sendable () -> Void] = []
    private var hasThread = false
    private var isClosed = false
    private var finishedJobs = 0

    private static let stackSize = 256 << 10

    init(name: String) throws(KernelFailure) {
        finished = try Descriptor.eventfd(of: name)
        self.name = name
        mutex.initialize(to: pthread_mutex_t())
        condition.initialize(to: pthread_cond_t())
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    var descriptor: Int32 { finished.rawValue }

    private func withLock<Value>(_ body: () -> Value) -> Value {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body()
    }

    /// Queues a job, and starts the thread if there is none. Returns the error number of pthread_create(3) if that
    /// fails: then the job is not queued.
    func submit(_ job: @escaping @Sendable () -> Void) -> Int32 {
        withLock {
            if !hasThread {
                let failure = DetachedThread.start(stackSize: Self.stackSize) { self.run() }
                guard failure == 0 else { return failure }
                hasThread = true
            }
            queue.append(job)
            pthread_cond_signal(condition)
            return 0
        }
    }

    /// Drops the waiting jobs, and makes the thread end once its present job is done.
    func close() {
        let dropped = withLock {
            isClosed = true
            pthread_cond_signal(condition)
            defer { queue = [] }
            return queue
        }
        // The objects that the jobs retain are released outside of the lock.
        _ = dropped
    }

    /// A job is finished: makes the descriptor readable.
    func noteFinished() {
        withLock { finishedJobs += 1 }
        var one: UInt64 = 1
        _ = write(finished.rawValue, &one, MemoryLayout<UInt64>.size)
    }

    /// How many jobs have finished since the last call; the descriptor is no longer readable until there are more.
    func popFinished() -> Int {
        // First: a job that ends in between is announced again, or its announcement finds nothing.
        var count: UInt64 = 0
        _ = read(finished.rawValue, &count, MemoryLayout<UInt64>.size)
        return withLock {
            defer { finishedJobs = 0 }
            return finishedJobs
        }
    }

    /// Waits until the descriptor is readable. To be called by a thread that may wait.
    ///
    /// - Parameter end: when to give up, CLOCK_MONOTONIC in microseconds.
    /// - Returns: whether it is readable.
    func wait(until end: UInt64) -> Bool {
        while true {
            let now = Clock.monotonicMicroseconds
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let count = poll(&ready, 1, now < end ? Int32(clamping: (end - now + 999) / 1_000) : 0)
            if count < 0, errno == EINTR { continue }
            return count == 1
        }
    }

    private func run() {
        _ = clinux_set_thread_name(name)
        while let job = next() { job() }
    }

    /// The next job; nil: the thread was closed.
    private func next() -> (@Sendable () -> Void)? {
        withLock {
            while queue.isEmpty, !isClosed { pthread_cond_wait(condition, mutex) }
            return isClosed ? nil : queue.removeFirst()
        }
    }
}

/// Threads that are never joined, and that handle no signals, because signals belong to the deciding thread.
private enum DetachedThread {
    /// Runs `body` on a new thread, which ends with it. Returns the error number of pthread_create(3); 0: it runs.
    ///
    /// - Parameter stackSize: in bytes. A locked stack counts whole (`MemoryLock`), and the default is 8 MiB.
    static func start(stackSize: Int, _ body: @escaping @Sendable () -> Void) -> Int32 {
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        // The least size is larger on some machines: 128 KiB on 64-bit ARM.
        pthread_attr_setstacksize(&attributes, max(stackSize, sysconf(Int32(_SC_THREAD_STACK_MIN))))
        var all = sigset_t()
        var before = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        var thread = pthread_t()
        let argument = Unmanaged.passRetained(Body(body))
        let failure = pthread_create(
            &thread, &attributes,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, argument.toOpaque())
        if failure != 0 { argument.release() }
        return failure
    }

    private final class Body: Sendable {
        let run: @Sendable () -> Void

        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }
}

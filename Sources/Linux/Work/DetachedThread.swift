import Glibc

/// Threads that are never joined, and that handle no signals, because signals belong to the deciding thread.
enum DetachedThread {
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

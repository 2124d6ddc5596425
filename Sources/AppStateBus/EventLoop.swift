import CSystemd
import Glibc

/// An event loop of sd-event(3). All handlers run on the thread that runs the loop.
public final class EventLoop {
    let pointer: OpaquePointer

    /// Creates a new loop, not the thread's default one.
    public init() throws(BusFailure) {
        var event: OpaquePointer?
        try check(sd_event_new(&event), "make", "an event loop")
        guard let event else {
            throw BusFailure(operation: "make", subject: "an event loop", errno: ENOMEM)
        }
        pointer = event
    }

    deinit {
        sd_event_unref(pointer)
    }

    /// Dispatches events until `exit(code:)` and returns its code. A loop runs once.
    ///
    /// - Parameter handled: called before the first event, and after each one unless it has ended the loop.
    public func run(handled: () -> Void = {}) throws(BusFailure) -> Int32 {
        var code: Int32 = 0
        while sd_event_get_state(pointer) != Int32(SD_EVENT_FINISHED) {
            // ENODATA: exit(code:) was not called.
            if sd_event_get_exit_code(pointer, &code) < 0 { handled() }
            try check(sd_event_run(pointer, UInt64.max), "run", "the event loop")
        }
        try check(sd_event_get_exit_code(pointer, &code), "run", "the event loop")
        return code
    }

    /// CLOCK_MONOTONIC at this moment, in microseconds. Inside another loop, `now` may be old.
    public static var clock: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1_000
    }

    /// Waits for one event and dispatches it.
    ///
    /// - Parameter timeout: how long to wait, in microseconds; `nil`: forever; 0: not at all.
    /// - Returns: whether something was dispatched.
    @discardableResult
    public func runOnce(timeout: UInt64?) throws(BusFailure) -> Bool {
        try check(sd_event_run(pointer, timeout ?? UInt64.max), "run", "the event loop") > 0
    }

    // MARK: Inside another loop

    /// For a loop that runs inside another one: readable when `dispatchPending()` has something to do, provided that
    /// `arm()` was called after the last use of this loop.
    public var descriptor: Int32 { sd_event_get_fd(pointer) }

    /// Dispatches due events, without waiting, and arms the descriptor again.
    ///
    /// - Parameter limit: the most events to dispatch, so that the loop around it goes on.
    /// - Returns: whether something is left that the descriptor does not report.
    public func dispatchPending(limit: Int) throws(BusFailure) -> Bool {
        var left = limit
        while left > 0 {
            left -= 1
            guard try isDue() else { break }
            try check(sd_event_dispatch(pointer), "run", "the event loop")
        }
        return try arm()
    }

    /// Makes the descriptor report everything that was requested of this loop and its buses since the last call.
    ///
    /// - Returns: whether something is due that the descriptor does not report.
    public func arm() throws(BusFailure) -> Bool {
        guard sd_event_get_state(pointer) != Int32(SD_EVENT_RUNNING) else { return false }
        if try isDue() { return true }
        return try check(sd_event_prepare(pointer), "prepare", "the event loop") > 0
    }

    /// Leaves the loop either pending or in its initial state.
    private func isDue() throws(BusFailure) -> Bool {
        var result: Int32
        switch UInt32(sd_event_get_state(pointer)) {
        case UInt32(SD_EVENT_PENDING): result = 1
        case UInt32(SD_EVENT_ARMED): result = sd_event_wait(pointer, 0)
        default:
            result = sd_event_prepare(pointer)
            if result == 0 { result = sd_event_wait(pointer, 0) }
        }
        return try check(result, "wait", "the event loop") > 0
    }

    /// From now on, the loop notifies the service manager in time that it runs, if that wants to know
    /// (`WatchdogSec=`): sd_event_set_watchdog(3).
    public func beginWatchdog() throws(BusFailure) {
        try check(sd_event_set_watchdog(pointer, 1), "begin", "the watchdog")
    }

    /// Ends `run()` after the current handler.
    public func exit(code: Int32) {
        sd_event_exit(pointer, code)
    }

    /// When the loop woke up last, CLOCK_MONOTONIC, in microseconds.
    public var now: UInt64 {
        var usec: UInt64 = 0
        sd_event_now(pointer, CLOCK_MONOTONIC, &usec)
        return usec
    }

    /// Calls `handler` whenever `descriptor` is ready.
    ///
    /// The caller keeps the descriptor and must leave it open until the source is cancelled. epoll(7) may go on
    /// reporting a descriptor that was closed before; libsystemd takes that for a broken program and aborts.
    ///
    /// - Parameters:
    ///   - descriptor: a descriptor that epoll(7) accepts.
    ///   - readiness: what to wait for; errors and hang-ups are reported in any case.
    ///   - handler: receives the readiness that was found.
    /// - Returns: the source; it watches for as long as it is kept.
    public func watch(
        _ descriptor: Int32, for readiness: Readiness = .readable, _ handler: @escaping (Readiness) -> Void
    ) throws(BusFailure) -> Source {
        try Source.make("watch descriptor \(descriptor)", handler) { source, userdata in
            sd_event_add_io(pointer, &source, descriptor, readiness.rawValue, ready, userdata)
        }
    }

    /// Creates a timer that is not armed. It fires within a microsecond of its time, as the kernel allows. If several
    /// become due before the loop turns, any of them may be first.
    ///
    /// - Parameter handler: called once for each time the timer was armed and came due.
    public func timer(_ handler: @escaping () -> Void) throws(BusFailure) -> Timer {
        let fire: (Readiness) -> Void = { _ in handler() }
        let source = try Source.make("make a timer", fire) { source, userdata in
            // An accuracy of 0 would mean libsystemd's default, 250 ms: sd_event_add_time(3).
            sd_event_add_time(pointer, &source, CLOCK_MONOTONIC, UInt64.max, 1, due, userdata)
        }
        let timer = Timer(source)
        timer.disarm()
        return timer
    }

    /// Calls `handler` whenever the signal arrives. This first blocks the signal on the calling thread, as signalfd(2)
    /// requires; call it before other threads are created.
    ///
    /// - Parameter signal: a signal number.
    public func onSignal(_ signal: Int32, _ handler: @escaping () -> Void) throws(BusFailure) -> Source {
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, signal)
        try check(-pthread_sigmask(SIG_BLOCK, &set, nil), "block", "signal \(signal)")
        let told: (Readiness) -> Void = { _ in handler() }
        return try Source.make("watch signal \(signal)", told) { source, userdata in
            sd_event_add_signal(pointer, &source, signal, signalled, userdata)
        }
    }
}

private func ready(
    _ source: OpaquePointer?, _ descriptor: Int32, _ events: UInt32, _ userdata: UnsafeMutableRawPointer?
) -> Int32 {
    handle(userdata, Readiness(rawValue: events))
}

private func due(_ source: OpaquePointer?, _ usec: UInt64, _ userdata: UnsafeMutableRawPointer?) -> Int32 {
    handle(userdata, [])
}

private func signalled(
    _ source: OpaquePointer?, _ info: UnsafePointer<signalfd_siginfo>?, _ userdata: UnsafeMutableRawPointer?
) -> Int32 {
    handle(userdata, [])
}

private func handle(_ userdata: UnsafeMutableRawPointer?, _ readiness: Readiness) -> Int32 {
    guard let userdata else { return -EINVAL }
    SourceContext.at(userdata).value(readiness)
    return 0
}

internal import AppStateBus
internal import CAppState
internal import Glibc

/// The application's connection to appstated, for a main loop other than Swift's: GLib's, Qt's, a game's.
///
/// Wait until `descriptor` is readable, for at most `timeout`, then call `dispatch()` on the main thread. It
/// calls the delegate. It also serves the main queue, so that tasks of the main actor run.
///
///     let connection = Application.shared.connect(Notes())
///     while true {
///         var ready = pollfd(fd: connection.descriptor, events: Int16(POLLIN), revents: 0)
///         poll(&ready, 1, connection.timeout)
///         connection.dispatch()
///     }
@MainActor
public final class Connection {
    let loop: EventLoop
    private var queue: Source?
    private var wakeUp: Source?
    private let bell: Int32
    /// Also true while `run()` runs the loop, because then nothing else waits for the descriptor.
    private var isDispatching: Bool
    /// Receives a signal that asks the program to end.
    private var ended: (Int32) -> Void = { _ in }

    /// The signals that ask a program to end, and whether a second one ends it at once. A second SIGHUP does not, nor
    /// one beside another signal: systemd sends it right after SIGTERM, and both a shell and the kernel send it when
    /// a terminal is closed.
    private static let signals = [(SIGTERM, true), (SIGINT, true), (SIGHUP, false)]

    /// The most events that one `dispatch()` handles.
    private static let mostEvents = 128

    init(servesMainQueue: Bool, runsItself: Bool = false) throws(BusFailure) {
        isDispatching = runsItself
        loop = try EventLoop()
        bell = cappstate_bell()
        guard bell >= 0 else { throw BusFailure(operation: "make", subject: "an eventfd", errno: errno) }
        wakeUp = try loop.watch(bell) { [weak self] _ in self?.answer() }
        if servesMainQueue {
            let main = cappstate_main_queue_descriptor()
            queue = try loop.watch(main) { _ in
                Self.clear(main)
                cappstate_main_queue_drain()
            }
        }
    }

    /// Readable when there is something to `dispatch()`. It stays the same for the lifetime of the
    /// application.
    public var descriptor: Int32 { loop.descriptor }

    /// The longest time to wait, in milliseconds, as poll(2) expects it: 0 if something is already due, else
    /// -1. The descriptor reports everything else, including events that become due later.
    public var timeout: Int32 {
        guard !isDispatching, let isDue = try? loop.arm() else { return -1 }
        return isDue ? 0 : -1
    }

    /// Handles pending events, without waiting. When called from within a callback, it does nothing.
    public func dispatch() {
        guard !isDispatching else { return }
        isDispatching = true
        defer { isDispatching = false }
        do {
            if try loop.dispatchPending(limit: Self.mostEvents) { ring() }
        } catch {
            Log.say("\(error)")
        }
    }

    /// Makes the descriptor report the reply to a request that was just sent. This is for a loop that does
    /// not read `timeout` before it waits.
    func arm() {
        guard !isDispatching, let isDue = try? loop.arm(), isDue else { return }
        ring()
    }

    /// Makes the descriptor readable.
    private func ring() {
        var one: UInt64 = 1
        _ = write(bell, &one, MemoryLayout<UInt64>.size)
    }

    @discardableResult
    private nonisolated static func clear(_ descriptor: Int32) -> UInt64 {
        var count: UInt64 = 0
        _ = read(descriptor, &count, MemoryLayout<UInt64>.size)
        return count
    }

    // MARK: Signals

    /// Passes the signals that end programs to `handler`, except those that the program ignores or handles itself.
    ///
    /// A signal does nothing but ring the bell, and the handler runs in the loop.
    func handleSignals(_ handler: @escaping (Int32) -> Void) {
        ended = handler
        for (signal, once) in Self.signals { cappstate_watch_signal(signal, bell, once ? 1 : 0) }
    }

    /// The bell has rung.
    private func answer() {
        let counter = Self.clear(bell)
        for (signal, _) in Self.signals where cappstate_has_signal(counter, signal) != 0 {
            // The next one ends the process at once, whichever it is.
            for (other, once) in Self.signals where once && signal != SIGHUP {
                cappstate_unwatch_signal(other)
            }
            ended(signal)
        }
    }

    /// Ends the process as a signal does without a handler.
    func end(by signal: Int32) -> Never {
        fflush(nil)
        cappstate_end_by_signal(signal)
        exit(128 + signal)
    }

    /// Runs the loop until the process ends.
    func run() throws(BusFailure) -> Never {
        exit(try loop.run())
    }
}

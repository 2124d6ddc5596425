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

    /// The most events that one `dispatch()` handles.
    private static let mostEvents = 128

    init(servesMainQueue: Bool, runsItself: Bool = false) throws(BusFailure) {
        isDispatching = runsItself
        loop = try EventLoop()
        bell = cappstate_bell()
        guard bell >= 0 else { throw BusFailure(operation: "make", subject: "an eventfd", errno: errno) }
        let bell = bell
        wakeUp = try loop.watch(bell) { _ in Self.clear(bell) }
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

    private nonisolated static func clear(_ descriptor: Int32) {
        var count: UInt64 = 0
        _ = read(descriptor, &count, MemoryLayout<UInt64>.size)
    }

    /// Runs the loop until the process ends.
    func run() throws(BusFailure) -> Never {
        exit(try loop.run())
    }
}

import CSystemd
import Glibc

/// The readiness of a descriptor: the bits of epoll_ctl(2).
public struct Readiness: OptionSet, Sendable {
    /// Bits of epoll_event's events.
    public let rawValue: UInt32

    /// - Parameter rawValue: bits of epoll_event's events.
    public init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    /// Data can be read (EPOLLIN).
    public static let readable = Readiness(rawValue: 0x001)
    /// An exceptional condition, such as a pressure stall trigger (EPOLLPRI).
    public static let priority = Readiness(rawValue: 0x002)
    /// Data can be written (EPOLLOUT).
    public static let writable = Readiness(rawValue: 0x004)
    /// An error; always reported (EPOLLERR).
    public static let error = Readiness(rawValue: 0x008)
    /// The other side is gone; always reported (EPOLLHUP).
    public static let hangUp = Readiness(rawValue: 0x010)
    /// May only be requested, together with others: the handler is called once for each arrival of data, not
    /// as long as there is data (EPOLLET, sd_event_add_io(3)).
    public static let edgeTriggered = Readiness(rawValue: 1 << 31)
}

/// A watch on a descriptor or a signal. It ends with `cancel()` or when it is released, even from within its own
/// handler. It keeps its handler: a handler that retains the owner of the source keeps both alive until `cancel()`.
public final class Source {
    fileprivate private(set) var pointer: OpaquePointer?

    init(_ pointer: OpaquePointer) {
        self.pointer = pointer
    }

    deinit {
        cancel()
    }

    /// Stops or resumes calling the handler. Readiness that occurs while it is off is reported once it is on.
    public func turn(on isOn: Bool) {
        guard let pointer else { return }
        sd_event_source_set_enabled(pointer, Int32(isOn ? SD_EVENT_ON : SD_EVENT_OFF))
    }

    /// Ends the watch; the handler is not called again.
    public func cancel() {
        guard let pointer else { return }
        self.pointer = nil
        sd_event_source_disable_unref(pointer)
    }
}

/// A timer on CLOCK_MONOTONIC. It ends with `cancel()` or when it is released, even from within its own handler.
public final class Timer {
    private let source: Source

    init(_ source: Source) {
        self.source = source
    }

    /// Calls the handler once, at the given time, or at once if that has passed. Replaces the time for which it was
    /// armed before.
    ///
    /// - Parameter time: CLOCK_MONOTONIC, in microseconds.
    public func arm(at time: UInt64) {
        guard let pointer = source.pointer else { return }
        let moved = sd_event_source_set_time(pointer, time)
        let enabled = sd_event_source_set_enabled(pointer, Int32(SD_EVENT_ONESHOT))
        // ESTALE: the loop has ended, so nothing can become due.
        precondition(
            (moved >= 0 && enabled >= 0) || moved == -ESTALE,
            "a timer of a living loop cannot refuse to be armed")
    }

    /// Cancels the pending call; the timer can be armed again.
    public func disarm() { source.turn(on: false) }

    /// Ends the timer for good.
    public func cancel() { source.cancel() }
}

typealias SourceContext = Context<(Readiness) -> Void>

extension Source {
    /// Creates a source whose userdata is the handler's context. The source owns the context from then on: it is
    /// released when libsystemd frees the source, which is after the handler that removed it has returned.
    static func make(
        _ operation: String, _ handler: @escaping (Readiness) -> Void,
        _ add: (inout OpaquePointer?, UnsafeMutableRawPointer?) -> Int32
    ) throws(BusFailure) -> Source {
        let source = try made(owning: SourceContext(handler), operation, "in the event loop", add)
        sd_event_source_set_destroy_callback(source) { userdata in
            guard let userdata else { return }
            Unmanaged<SourceContext>.fromOpaque(userdata).release()
        }
        return Source(source)
    }
}

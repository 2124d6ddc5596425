import CLinux

/// Waits for the end of any number of processes behind one descriptor, an epoll(7) instance.
///
/// An event loop that watched a thousand pidfds one by one would give each of them a turn before it read
/// anything else again, were they all to end at once; this way the ends are taken one a turn.
public final class ExitWatch {
    private let epoll: Descriptor

    public init() throws(KernelFailure) {
        epoll = try Descriptor.taking(clinux_epoll_create(), "epoll_create", "for the ends of processes")
    }

    /// To be polled for readability: readable while `next()` has something to give.
    public var descriptor: Int32 { epoll.rawValue }

    /// Watches a pidfd under a number of the caller's. Closing it, or `remove`, ends that.
    public func add(_ process: borrowing PidFD, as number: UInt64) throws(KernelFailure) {
        let result = clinux_epoll_add(epoll.rawValue, process.rawValue, number)
        guard result == 0 else {
            throw KernelFailure(operation: "epoll_ctl", subject: "pidfd \(process.rawValue)", errno: -result)
        }
    }

    /// Watches it no longer. A pidfd that is not watched is no failure.
    public func remove(_ process: borrowing PidFD) {
        _ = clinux_epoll_remove(epoll.rawValue, process.rawValue)
    }

    /// The number of a process that has ended; nil where none has. It is given again until it is removed.
    public func next() -> UInt64? {
        var number: UInt64 = 0
        return clinux_epoll_next(epoll.rawValue, &number) == 1 ? number : nil
    }
}

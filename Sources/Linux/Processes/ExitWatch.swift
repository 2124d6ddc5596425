import CLinux

/// Waits for the end of any number of processes behind one descriptor, an epoll(7) instance.
///
/// If an event loop watched a thousand pidfds one by one, and all of them ended at once, each would get a turn before
/// the loop read anything else again. This way the loop takes one end per turn.
public final class ExitWatch {
    private let epoll: Descriptor

    public init() throws(KernelFailure) {
        epoll = try Descriptor.taking(clinux_epoll_create(), "epoll_create", "for the ends of processes")
    }

    /// To be polled for readability: readable while `next()` has something to return.
    public var descriptor: Int32 { epoll.rawValue }

    /// Watches a pidfd under a number that the caller chooses, until the pidfd is closed or passed to `remove`.
    public func add(_ process: borrowing PidFD, as number: UInt64) throws(KernelFailure) {
        let result = clinux_epoll_add(epoll.rawValue, process.rawValue, number)
        guard result == 0 else {
            throw KernelFailure(operation: "epoll_ctl", subject: "pidfd \(process.rawValue)", errno: -result)
        }
    }

    /// Stops watching it. A pidfd that is not watched is no failure.
    public func remove(_ process: borrowing PidFD) {
        _ = clinux_epoll_remove(epoll.rawValue, process.rawValue)
    }

    /// The number of a process that has ended; nil if none has. It is returned again until the process is removed.
    public func next() -> UInt64? {
        var number: UInt64 = 0
        return clinux_epoll_next(epoll.rawValue, &number) == 1 ? number : nil
    }
}

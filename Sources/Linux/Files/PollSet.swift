import CLinux

/// Several descriptors to be polled as one, an epoll(7) instance.
///
/// If an event loop watched a thousand pidfds one by one, and all of them became ready at once, each would get a turn
/// before the loop read anything else again. This way the loop takes one per turn.
public final class PollSet {
    private let epoll: Descriptor

    public init() throws(KernelFailure) {
        epoll = try Descriptor.taking(clinux_epoll_create(), "epoll_create", "for several descriptors")
    }

    /// To be polled for readability: readable while one of the descriptors is, or has an error.
    public var descriptor: Int32 { epoll.rawValue }

    /// Adds a descriptor under a number that the caller chooses, until it is closed or passed to `remove`.
    public func add(_ descriptor: Int32, as number: UInt64 = 0) throws(KernelFailure) {
        let result = clinux_epoll_add(epoll.rawValue, descriptor, number)
        guard result == 0 else {
            throw KernelFailure(operation: "epoll_ctl", subject: "descriptor \(descriptor)", errno: -result)
        }
    }

    /// One that is not in the set is no failure.
    public func remove(_ descriptor: Int32) { _ = clinux_epoll_remove(epoll.rawValue, descriptor) }

    /// The number of a readable descriptor; nil if none is. It is returned again until the descriptor is removed.
    public func next() -> UInt64? {
        var number: UInt64 = 0
        return clinux_epoll_next(epoll.rawValue, &number) == 1 ? number : nil
    }
}

import CLinux

/// Several descriptors to be polled as one, an epoll(7) instance.
public final class PollSet {
    private let epoll: Descriptor

    public init() throws(KernelFailure) {
        epoll = try Descriptor.taking(clinux_epoll_create(), "epoll_create", "for several descriptors")
    }

    /// To be polled for readability: readable while one of the descriptors is, or has an error.
    public var descriptor: Int32 { epoll.rawValue }

    /// Adds a descriptor, until it is closed.
    public func add(_ descriptor: Int32) throws(KernelFailure) {
        let result = clinux_epoll_add(epoll.rawValue, descriptor, 0)
        guard result == 0 else {
            throw KernelFailure(operation: "epoll_ctl", subject: "descriptor \(descriptor)", errno: -result)
        }
    }
}

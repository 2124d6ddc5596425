import CLinux
import Glibc

/// An open file descriptor with one owner, closed when the owner ends.
public struct Descriptor: ~Copyable, Sendable {
    /// The number, valid while this value lives.
    public let rawValue: Int32

    /// Takes over an open descriptor; no other code may close it.
    public init(owning rawValue: Int32) {
        self.rawValue = rawValue
    }

    deinit {
        _ = close(rawValue)
    }

    /// Gives the open descriptor away: the caller closes it.
    public consuming func release() -> Int32 {
        let number = rawValue
        discard self
        return number
    }

    /// A second descriptor of the same open file, close-on-exec (`F_DUPFD_CLOEXEC` of fcntl(2)).
    public func duplicate() throws(KernelFailure) -> Descriptor {
        let copy = fcntl(rawValue, F_DUPFD_CLOEXEC, 3)
        guard copy >= 0 else {
            throw KernelFailure(operation: "dup", subject: "descriptor \(rawValue)", errno: errno)
        }
        return Descriptor(owning: copy)
    }
}

extension Descriptor {
    /// Opens a file, close-on-exec: for reading, unless the flags say otherwise.
    static func open(
        _ path: String, _ flags: Int32 = O_RDONLY, mode: mode_t = 0
    ) throws(KernelFailure) -> Descriptor {
        let number = Glibc.open(path, flags | O_CLOEXEC, mode)
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: errno) }
        return Descriptor(owning: number)
    }

    /// A pipe, close-on-exec: the end to read from, and the end to write to. The caller closes both.
    public static func pipe() throws(KernelFailure) -> (reading: Int32, writing: Int32) {
        var ends: [Int32] = [-1, -1]
        let result = clinux_pipe(&ends, O_CLOEXEC)
        guard result == 0 else {
            throw KernelFailure(operation: "make", subject: "a pipe", errno: -result)
        }
        return (ends[0], ends[1])
    }

    /// Turns the result of one of our own calls into an owned descriptor, or throws its failure.
    /// An eventfd(2) that does not block.
    public static func eventfd(of subject: String) throws(KernelFailure) -> Descriptor {
        try taking(clinux_eventfd(O_CLOEXEC | O_NONBLOCK), "eventfd", subject)
    }

    static func taking(
        _ result: Int32, _ operation: String, _ subject: String
    ) throws(KernelFailure) -> Descriptor {
        guard result >= 0 else {
            throw KernelFailure(operation: operation, subject: subject, errno: -result)
        }
        return Descriptor(owning: result)
    }
}

extension Descriptor {
    /// Closes all descriptors from a number on, regardless of their owner: for a process that is about to run
    /// another program.
    public static func closeAll(from first: Int32) { _ = clinux_close_range(UInt32(first)) }
}

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

/// A memory file (memfd_create(2)) that no process can change any longer: sealed against writing, growing,
/// shrinking and further sealing. Reading it never waits for the process that created it, and always gives
/// the same content.
public struct SealedMemory: ~Copyable, Sendable {
    private let file: Descriptor
    /// In bytes; never changes.
    public let size: UInt64

    /// Valid while this value lives.
    public var rawValue: Int32 { file.rawValue }

    /// Takes over the descriptor.
    ///
    /// - Throws: `EINVAL` for a file that is not a memory file (fcntl(2), `F_GET_SEALS`); `EPERM` if a seal
    ///   is missing; `EBADF` if it is not open for reading.
    public init(adopting file: consuming Descriptor) throws(KernelFailure) {
        let seals = clinux_get_seals(file.rawValue)
        guard seals >= 0 else {
            throw KernelFailure(operation: "F_GET_SEALS", subject: "the descriptor", errno: -seals)
        }
        let wanted = clinux_all_seals()
        guard seals & wanted == wanted else {
            throw KernelFailure(operation: "use unsealed", subject: "the memory file", errno: EPERM)
        }
        guard fcntl(file.rawValue, F_GETFL) & O_ACCMODE != O_WRONLY else {
            throw KernelFailure(operation: "read", subject: "the memory file", errno: EBADF)
        }
        var status = stat()
        guard fstat(file.rawValue, &status) == 0 else {
            throw KernelFailure(operation: "fstat", subject: "the memory file", errno: errno)
        }
        size = UInt64(max(0, status.st_size))
        self.file = file
    }
}

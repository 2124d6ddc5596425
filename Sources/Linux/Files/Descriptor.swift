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

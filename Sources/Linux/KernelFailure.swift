import Glibc

/// The kernel refused an operation: names the operation, its subject and the errno.
public struct KernelFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// The call, for example `pidfd_open`.
    public let operation: String
    /// The object of the call, for example `pid 12` or a path.
    public let subject: String
    /// The error number of errno(3), positive.
    public let errno: Int32

    /// A failure of `operation` on `subject` with a positive error number.
    public init(operation: String, subject: String, errno: Int32) {
        self.operation = operation
        self.subject = subject
        self.errno = errno
    }

    /// The process is gone (`ESRCH`).
    public var isNoSuchProcess: Bool { errno == ESRCH }

    /// There is no such file (`ENOENT`).
    public var isNoSuchFile: Bool { errno == ENOENT }

    /// We have no descriptors or no memory left, so the failure says nothing about the subject.
    public var isExhaustion: Bool { [EMFILE, ENFILE, ENOMEM].contains(errno) }

    /// One sentence: the call, its subject and the C library's words for the error number.
    public var description: String {
        "\(operation) \(subject): \(String(cString: strerror(errno)))"
    }
}

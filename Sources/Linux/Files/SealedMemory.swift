import CLinux
import Glibc

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

import Glibc

/// Keeps the memory of this process resident (mlockall(2)), so that it does not wait for its own pages when there is no
/// memory left. This covers what is mapped now and later, each page from its first use on (`MCL_ONFAULT`, since Linux
/// 4.4).
public enum MemoryLock {
    /// Why the memory was not locked.
    public enum Failure: Error, Equatable, Sendable, CustomStringConvertible {
        /// `EPERM`: `RLIMIT_MEMLOCK` is 0, and we lack `CAP_IPC_LOCK`.
        case notPermitted
        /// `ENOMEM`: we are larger than `RLIMIT_MEMLOCK`, which is this many bytes, and lack `CAP_IPC_LOCK`.
        case overLimit(UInt64)
        /// `ENOMEM` though there is no limit, `EAGAIN`, and others.
        case failed(KernelFailure)

        init(errno number: Int32, limit: UInt64?) {
            switch (number, limit) {
            case (EPERM, _): self = .notPermitted
            case (ENOMEM, .some(let limit)): self = .overLimit(limit)
            case (_, _):
                self = .failed(KernelFailure(operation: "mlockall", subject: "own memory", errno: number))
            }
        }

        /// One sentence.
        public var description: String {
            switch self {
            case .notPermitted: "own memory may not be locked: RLIMIT_MEMLOCK is 0 without CAP_IPC_LOCK"
            case .overLimit(let limit):
                "own memory is more than may be locked: RLIMIT_MEMLOCK is \(limit) bytes"
            case .failed(let failure): failure.description
            }
        }
    }

    /// Locks it. Children do not inherit the lock (fork(2)), and execve(2) ends it.
    public static func lock() throws(Failure) {
        guard mlockall(Int32(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) == 0 else {
            throw Failure(errno: errno, limit: limit)
        }
    }

    /// `RLIMIT_MEMLOCK` in bytes; nil for none.
    private static var limit: UInt64? {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue), &limit) == 0,
            limit.rlim_cur != rlim_t.max
        else { return nil }
        return UInt64(limit.rlim_cur)
    }
}

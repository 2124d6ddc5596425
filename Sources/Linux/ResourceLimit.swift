import Glibc

/// Limits of this process, getrlimit(2).
public enum ResourceLimit {
    /// How many files may be open now; 0 where that cannot be told.
    public static var openFiles: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 0 }
        return Int(clamping: limit.rlim_cur)
    }

    /// Raises the number of open files to what is allowed: a pidfd is held for every process that matters.
    public static func raiseOpenFiles() throws(KernelFailure) {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw KernelFailure(operation: "getrlimit", subject: "RLIMIT_NOFILE", errno: errno)
        }
        limit.rlim_cur = limit.rlim_max
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw KernelFailure(operation: "setrlimit", subject: "RLIMIT_NOFILE", errno: errno)
        }
    }
}

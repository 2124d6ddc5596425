import Glibc

/// Limits of this process: getrlimit(2).
public enum ResourceLimit {
    /// How many files may be open now; 0 if the limit cannot be read.
    public static var openFiles: Int {
        (try? files()).map { Int(clamping: $0.rlim_cur) } ?? 0
    }

    /// Raises the number of open files to the allowed maximum: the daemon holds a pidfd for every process that matters.
    public static func raiseOpenFiles() throws(KernelFailure) {
        var limit = try files()
        limit.rlim_cur = limit.rlim_max
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw KernelFailure(operation: "setrlimit", subject: "RLIMIT_NOFILE", errno: errno)
        }
    }

    private static func files() throws(KernelFailure) -> rlimit {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw KernelFailure(operation: "getrlimit", subject: "RLIMIT_NOFILE", errno: errno)
        }
        return limit
    }
}

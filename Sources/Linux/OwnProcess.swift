import CLinux
import Glibc

/// The environments of processes.
public enum Environment {
    /// The value of a variable of this process; nil if it is not set or is empty.
    public static subscript(name: String) -> String? {
        getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
    }

    /// systemd.exec(5): several directories are separated by colons; the first is ours.
    public static func firstDirectory(of directories: String) -> String {
        String(directories.prefix { $0 != ":" })
    }
}

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

/// A capability of this thread (capabilities(7)) that stays permitted but is not effective. The thread raises it only
/// where it decides to use it, so the kernel does not permit anything by accident.
public struct Capability: Sendable {
    /// The capability's number in include/uapi/linux/capability.h.
    let number: UInt32

    /// Allows a PSI trigger with any window (Documentation/accounting/psi.rst). If it were effective, each
    /// `oom_score_adj` that is raised would also become the minimum that its process may set
    /// (proc_pid_oom_score_adj(5)).
    public static let sysResource = Capability(number: 24)

    /// Makes the capability ineffective; `use` can still raise it. Does nothing if the thread does not have it.
    public func layDown() {
        _ = clinux_set_effective(number, 0)
    }

    /// Runs `body` with the capability effective, if the thread has it.
    func use<Value, Failure: Error>(_ body: () throws(Failure) -> Value) throws(Failure) -> Value {
        let before = clinux_set_effective(number, 1)
        defer { if before == 0 { _ = clinux_set_effective(number, 0) } }
        return try body()
    }
}

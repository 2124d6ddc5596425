import CLinux
import Glibc

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

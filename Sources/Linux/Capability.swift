import CLinux
import Glibc

/// Capabilities of this thread (capabilities(7)) that are kept at hand and not in force: each use of one is a
/// decision, and what the kernel allows by the way it does not.
public struct Capability: Sendable {
    /// Its number in include/uapi/linux/capability.h.
    let number: UInt32

    /// A PSI trigger with any window (Documentation/accounting/psi.rst). In force, it would also mark each
    /// `oom_score_adj` that is raised as the least that its process may set (proc_pid_oom_score_adj(5)).
    public static let sysResource = Capability(number: 24)

    /// Takes it out of force; it can be used all the same. Without it, nothing.
    public func layDown() {
        _ = clinux_set_effective(number, 0)
    }

    /// Does something with it in force, if it is at hand.
    func use<Value, Failure: Error>(_ body: () throws(Failure) -> Value) throws(Failure) -> Value {
        let before = clinux_set_effective(number, 1)
        defer { if before == 0 { _ = clinux_set_effective(number, 0) } }
        return try body()
    }
}

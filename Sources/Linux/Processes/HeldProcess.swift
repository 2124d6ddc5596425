import Glibc

/// A member of an extent, held by its pidfd so that its id cannot be mistaken for another process.
final class HeldProcess {
    let identity: ProcessIdentity
    private let pidfd: PidFD

    /// Opens the process, and only then checks its identity: a process that took the id before the opening has another
    /// start time. Throws `ESRCH` if it is gone or another.
    init(_ identity: ProcessIdentity, proc: Proc) throws(KernelFailure) {
        let pidfd = try PidFD(pid: identity.pid)
        let now = try proc.identity(of: identity.pid)
        guard now == identity, !pidfd.hasExited else {
            throw KernelFailure(operation: "hold", subject: "process \(identity)", errno: ESRCH)
        }
        self.identity = identity
        self.pidfd = pidfd
    }

    var hasExited: Bool { pidfd.hasExited }

    /// nil: it is gone, or the kernel does not report its owner.
    var owner: Proc.Owner? { pidfd.owner }

    /// Throws `EPERM` unless all four user ids are `uid` now.
    func checkOwner(_ uid: UInt32, proc: Proc) throws(KernelFailure) {
        let present = if let owner { owner } else { try proc.status(identity.pid).owner }
        guard present.isWholly(uid) else {
            throw KernelFailure(
                operation: "check before a signal that user \(uid) alone owns",
                subject: "process \(identity)",
                errno: EPERM)
        }
    }

    /// Checks the owner at this moment, then signals.
    ///
    /// The check uses the id. If the id belongs to another process meanwhile, the signal finds ours gone.
    func signal(_ signal: Int32, owner uid: UInt32, proc: Proc) throws(KernelFailure) {
        try checkOwner(uid, proc: proc)
        try pidfd.send(signal)
    }

    /// Signals without checking the owner, to undo our own stop of the process.
    func undo(with signal: Int32) throws(KernelFailure) {
        try pidfd.send(signal)
    }
}

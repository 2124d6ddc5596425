import Glibc

/// A member of an extent, held by its pidfd so that its id cannot come to mean another.
final class HeldProcess {
    let identity: ProcessIdentity
    private let pidfd: PidFD

    /// Opens it, and only then asks who it is: a process that took its id before the opening has another
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

    /// nil: it is gone, or the kernel does not tell.
    var owner: Proc.Owner? { pidfd.owner }

    /// Throws `EPERM` unless all four user ids are `uid` now.
    func checkOwner(_ uid: UInt32, proc: Proc) throws(KernelFailure) {
        let status = try proc.status(identity.pid)
        guard status.owner.isWholly(uid) else {
            throw KernelFailure(
                operation: "signal what is not wholly user \(uid)'s:", subject: "process \(identity)",
                errno: EPERM)
        }
    }

    /// Checks the owner at this moment, then signals.
    ///
    /// The look goes by the number: should that be another's meanwhile, the signal finds ours gone.
    func signal(_ signal: Int32, owner uid: UInt32, proc: Proc) throws(KernelFailure) {
        try checkOwner(uid, proc: proc)
        try pidfd.send(signal)
    }

    /// Signals without a look at the owner: to take back what we did to it ourselves.
    func takeBack(_ signal: Int32) throws(KernelFailure) {
        try pidfd.send(signal)
    }
}

import Glibc

extension Proc {
    /// Throws `ESRCH` unless `process` lives under its id, `EPERM` unless all four of its user ids are `uid`.
    ///
    /// For what the kernel takes by number. The owner is read first: who is still the same after that was
    /// the one that was read.
    func checkOwned(_ process: ProcessIdentity, by uid: UInt32) throws(KernelFailure) {
        let owner = try status(process.pid).owner
        let stat = try stat(process.pid)
        guard stat.identity == process else {
            throw KernelFailure(operation: "check", subject: "process \(process)", errno: ESRCH)
        }
        guard owner.isWholly(uid) else {
            throw KernelFailure(
                operation: "change what is not wholly user \(uid)'s:", subject: "process \(process)",
                errno: EPERM)
        }
    }

    /// Who a thread of a process is. `ESRCH`: the process has no such thread.
    func identity(ofThread thread: Int32, in pid: Int32) throws(KernelFailure) -> ProcessIdentity {
        try stat(ofThread: thread, in: pid).identity
    }

    func checkThread(_ thread: ProcessIdentity, of process: ProcessIdentity) throws(KernelFailure) {
        // The leading thread is the process.
        if thread == process { return }
        guard (try? identity(ofThread: thread.pid, in: process.pid)) == thread else {
            throw KernelFailure(operation: "check", subject: "thread \(thread)", errno: ESRCH)
        }
    }
}

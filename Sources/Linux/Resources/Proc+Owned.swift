import Glibc

extension Proc {
    /// Throws `ESRCH` unless `process` lives under its id, `EPERM` unless all four of its user ids are `uid`.
    ///
    /// For calls that take a process by its id. The owner is read first: if the process is still the same after that,
    /// it is the one whose owner was read.
    func checkOwned(_ process: ProcessIdentity, by uid: UInt32) throws(KernelFailure) {
        let owner = try status(process.pid).owner
        let stat = try stat(process.pid)
        guard stat.identity == process else {
            throw KernelFailure(operation: "check", subject: "process \(process)", errno: ESRCH)
        }
        guard owner.isWholly(uid) else {
            throw KernelFailure(
                operation: "check before a change that user \(uid) alone owns", subject: "process \(process)",
                errno: EPERM)
        }
    }

    /// The identity of a thread of a process. `ESRCH`: the process has no such thread.
    func identity(ofThread thread: Int32, in pid: Int32) throws(KernelFailure) -> ProcessIdentity {
        try stat(ofThread: thread, in: pid).identity
    }

    /// Throws `ESRCH` unless the process has this thread.
    func checkThread(_ thread: ProcessIdentity, of process: ProcessIdentity) throws(KernelFailure) {
        // The leading thread is the process.
        if thread == process { return }
        do throws(KernelFailure) {
            if try identity(ofThread: thread.pid, in: process.pid) == thread { return }
        } catch {
            guard error.isNoSuchFile || error.isNoSuchProcess else { throw error }
        }
        throw KernelFailure(operation: "check", subject: "thread \(thread)", errno: ESRCH)
    }
}

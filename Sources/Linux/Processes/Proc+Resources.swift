import Glibc

extension Proc {
    /// Bytes of memory that are in RAM: field 2 of `/proc/PID/statm`, converted from pages.
    public func residentBytes(_ pid: Int32) throws(KernelFailure) -> UInt64 {
        let pages = try readOnce(pid, "statm") { $0.skip(fields: 1) ? $0.unsigned() : nil }
        return pages.multipliedReportingOverflow(by: UInt64(sysconf(Int32(_SC_PAGESIZE)))).partialValue
    }

    /// The process's cgroup in the unified hierarchy, as a path from that hierarchy's root: the line `0::` of
    /// `/proc/PID/cgroup` (cgroups(7)); nil if there is none. The path of a removed cgroup ends in ` (deleted)`.
    ///
    /// Throws `EILSEQ` for a path that is not UTF-8, because replaced bytes would name another cgroup.
    public func unifiedCgroup(of pid: Int32) throws(KernelFailure) -> String? {
        var path: String?
        var isText = true
        try forEachLine(pid, "cgroup") { line in
            guard line.skip("0::") else { return true }
            path = line.exactText
            isText = path != nil
            return false
        }
        guard isText else {
            throw KernelFailure(operation: "read", subject: self.path(pid, "cgroup"), errno: EILSEQ)
        }
        return path
    }
}

extension Proc {
    /// Whether all four user ids of a process are `uid`. Throws `ESRCH` if there is no such process.
    func isWholly(_ pid: Int32, _ uid: UInt32) throws(KernelFailure) -> Bool {
        // Where the kernel tells (Linux 6.13), this takes a third of the time of /proc/PID/status.
        if let owner = try PidFD(pid: pid).owner { return owner.isWholly(uid) }
        return try status(pid).owner.isWholly(uid)
    }

    /// Throws `ESRCH` unless `process` lives under its id, `EPERM` unless all four of its user ids are `uid`.
    ///
    /// For calls that take a process by its id. The owner is read first: if the process is still the same after that,
    /// it is the one whose owner was read.
    func checkOwned(_ process: ProcessIdentity, by uid: UInt32) throws(KernelFailure) {
        let isOwned = try isWholly(process.pid, uid)
        guard try identity(of: process.pid) == process else {
            throw KernelFailure(operation: "check", subject: "process \(process)", errno: ESRCH)
        }
        guard isOwned else {
            throw KernelFailure(
                operation: "check before a change that user \(uid) alone owns", subject: "process \(process)",
                errno: EPERM)
        }
    }
}

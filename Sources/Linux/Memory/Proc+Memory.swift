import Glibc

extension Proc {
    /// How much of the machine's memory a process has, in bytes (proc_pid_status(5)).
    public struct Memory: Equatable, Sendable {
        /// `RssAnon`: resident and in no file. Pages that it shares with others after fork(2) count, too.
        public var anonymous: UInt64 = 0
        /// `RssFile`: resident and of a file, whichever other processes have it mapped.
        public var files: UInt64 = 0
        /// `VmSwap`: its private anonymous pages in swap.
        public var swap: UInt64 = 0

        /// The memory that its end would free, in memory and in swap.
        public var releasable: UInt64 { anonymous &+ swap }
    }

    /// Reads it from `/proc/PID/status`. A zombie and a kernel thread have none, so all values are 0.
    ///
    /// The kernel counts in batches of some dozens of pages for each thread or CPU, and the figures are inexact by that
    /// (proc_pid_status(5)). Throws `ESRCH` if there is no such process.
    ///
    /// - Parameter evenIfLong: as for `status`.
    public func memory(of pid: Int32, evenIfLong: Bool = true) throws(KernelFailure) -> Memory {
        var memory = Memory()
        try forEachStatusLine(pid, evenIfLong: evenIfLong) { line in
            if line.take("RssAnon:") {
                memory.anonymous = line.kibibytes() ?? 0
            } else if line.take("RssFile:") {
                memory.files = line.kibibytes() ?? 0
            } else if line.take("VmSwap:") {
                memory.swap = line.kibibytes() ?? 0
                return false
            }
            return true
        }
        return memory
    }

    /// The memory that the end of a process would free, in bytes, in a time that its user cannot make long: if its status
    /// is long, what it has in swap is not counted (proc_pid_statm(5)).
    ///
    /// Throws `ESRCH` if there is no such process.
    public func releasableMemory(of pid: Int32) throws(KernelFailure) -> UInt64 {
        do throws(KernelFailure) {
            return try memory(of: pid, evenIfLong: false).releasable
        } catch {
            guard error.errno == EFBIG else { throw error }
        }
        let pages = try readOnce(pid, "statm") { text -> UInt64? in
            guard text.skip(fields: 1), let resident = text.unsigned(), let shared = text.unsigned() else {
                return nil
            }
            return resident > shared ? resident - shared : 0
        }
        return pages.multipliedReportingOverflow(by: UInt64(sysconf(Int32(_SC_PAGESIZE)))).partialValue
    }
}

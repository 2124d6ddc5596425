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
    public func memory(of pid: Int32) throws(KernelFailure) -> Memory {
        var memory = Memory()
        try forEachLine(pid, "status") { line in
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
}

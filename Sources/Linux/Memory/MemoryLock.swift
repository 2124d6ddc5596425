import CLinux
import Glibc

/// Keeps the memory of this process resident (mlockall(2)), so that it does not wait for its own pages when there is no
/// memory left. This covers what is mapped now and later, each page from its first use on (`MCL_ONFAULT`, since Linux
/// 4.4).
public enum MemoryLock {
    /// Locks it. Children do not inherit the lock (fork(2)), and execve(2) ends it.
    ///
    /// To be called when the start is over: code that only the start has used is unmapped first, and stays in the page
    /// cache.
    ///
    /// Throws `EPERM` or `ENOMEM` if `RLIMIT_MEMLOCK` is too low, and we lack `CAP_IPC_LOCK`.
    public static func lock() throws(KernelFailure) {
        try? unmapCode()
        guard mlockall(Int32(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) == 0 else {
            throw KernelFailure(operation: "mlockall", subject: "own memory", errno: errno)
        }
    }

    /// Each page of code that is used maps its neighbours (fault-around), so that after a start nearly all code is mapped.
    private static func unmapCode() throws(KernelFailure) {
        try Files.forEachLine(of: "/proc/self/maps") { line in
            // proc_pid_maps(5): addresses, permissions, offset, device, inode, file. Pages of code are never changed, so
            // nothing is lost.
            if let start = line.hexadecimal(), line.skip("-"), let end = line.hexadecimal(),
                line.skip(" r-xp "), line.skip(fields: 3), line.byte() == UInt8(ascii: "/")
            {
                madvise(UnsafeMutableRawPointer(bitPattern: start), Int(end - start), MADV_DONTNEED)
            }
            return true
        }
    }
}

/// The C library's heap.
public enum Heap {
    /// Gives each block of 128 KiB or more a mapping of its own, which is gone as soon as the block is freed.
    ///
    /// Otherwise glibc raises this size to that of the largest block that was ever freed, up to 32 MiB, and keeps
    /// up to twice as much free memory at the end of the heap (mallopt(3), `M_MMAP_THRESHOLD`). One long message
    /// would then cost that much memory for as long as the process runs.
    public static func returnLargeBlocks() {
        _ = clinux_set_mmap_threshold(128 << 10)
    }
}

import CLinux
import Glibc

/// Pages out the memory of a process: process_madvise(2) with `MADV_PAGEOUT`, since Linux 5.10. Anonymous
/// memory goes to swap, if there is any; pages of files are written back if they were changed, and dropped.
///
/// The kernel does not page out memory that other processes have mapped as well. It also leaves files alone
/// that the caller may not write, so that no process can find out what others have read (mm/madvise.c,
/// `can_do_file_pageout`: `CAP_DAC_OVERRIDE` is sufficient). Needs `CAP_SYS_NICE`, and ptrace access to read
/// (`CAP_SYS_PTRACE` for another user's process). It may take long, and cause faults on our own memory, so
/// the deciding thread must not call it.
public enum PageOut {
    /// The result.
    public struct Outcome: Equatable, Sendable {
        /// Bytes of the ranges for which the kernel accepted the advice, whether or not they were resident.
        public var advised: UInt64 = 0
        /// Bytes of ranges that it refused, because the memory is locked or no longer mapped.
        public var refused: UInt64 = 0
        /// The memory of the process before.
        public var before: Proc.Memory
        /// The memory of the process after.
        public var after: Proc.Memory

        /// Bytes that became free, according to `RssAnon` and `RssFile`.
        public var released: UInt64 {
            let (had, has) = (before.anonymous &+ before.files, after.anonymous &+ after.files)
            return had > has ? had - has : 0
        }
    }

    /// What to page out.
    public enum Extent: Sendable {
        /// Mappings of files.
        case files
        /// Mappings of files, and private anonymous memory.
        case everything
    }

    /// Advises the kernel about all ranges of that kind.
    ///
    /// The owner is checked before each call to the kernel, and the advice goes through a pidfd: a process that has
    /// taken the id meanwhile is not affected. Throws `ESRCH` if the process is gone or becomes so, `EPERM`
    /// if we may not, or unless all four of its user ids are `uid`, `ENOSYS` on older kernels.
    ///
    /// - Parameter isWanted: asked before each call; false: the rest stays where it is. One call covers 8 MiB, or a
    ///   thousandth of all ranges if that is more: while it lasts, the kernel keeps even the memory of a process that
    ///   is killed.
    public static func perform(
        on process: ProcessIdentity, owner uid: UInt32, _ extent: Extent = .everything, proc: Proc = Proc(),
        while isWanted: () -> Bool = { true }
    ) throws(KernelFailure) -> Outcome {
        let pidfd = try PidFD(pid: process.pid)
        try proc.checkOwned(process, by: uid)
        let before = try proc.memory(of: process.pid)
        var batch = Batch()
        try proc.forEachLine(process.pid, "maps") { line in
            guard let range = Mapping(parsing: line.rest)?.worthwhileRange(extent) else { return true }
            batch.ranges.append(range)
            return batch.ranges.count < Self.limit
        }
        let total = batch.ranges.reduce(0) { $0 &+ $1.iov_len }
        // The kernel requires each range to begin at a page: 64 KiB is a multiple of every page size.
        let most = max(Self.shortestCall, total / 1_000 & ~0xffff)
        while batch.next < batch.ranges.count, isWanted() {
            try proc.checkOwned(process, by: uid)
            try batch.advise(pidfd.rawValue, process, most: most)
        }
        let after = try proc.memory(of: process.pid)
        return Outcome(
            advised: batch.advised, refused: batch.refused, before: before, after: after)
    }

    /// Bytes.
    private static let shortestCall = 8 << 20

    /// More than vm.max_map_count (65,530) lets a process have, unless that was raised.
    private static let limit = 1 << 16

    /// One line of `/proc/PID/maps` (proc_pid_maps(5)).
    struct Mapping {
        let start: UInt
        let end: UInt
        let isPrivateAnonymous: Bool
        let isOfFile: Bool
        let isAccessible: Bool

        /// Shorter ranges gain little: the kernel reads eight pages of swap at once (vm.page-cluster).
        static let shortest: UInt = 32 << 10

        /// For example `55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0    [heap]`.
        init?(parsing line: UnsafeRawBufferPointer) {
            var bytes = Bytes(line)
            guard let start = bytes.hexadecimal(), bytes.skip("-"), let end = bytes.hexadecimal(),
                start < end, let read = bytes.byte(), let write = bytes.byte(), let execute = bytes.byte(),
                let sharing = bytes.byte(), bytes.skip(fields: 2), let inode = bytes.unsigned()
            else { return nil }
            self.start = start
            self.end = end
            // The kernel's own mappings, such as the clock's page, are not memory of the process.
            let isKernels = bytes.byte() == UInt8(ascii: "[") && bytes.skip("v")
            isPrivateAnonymous = sharing == UInt8(ascii: "p") && inode == 0 && !isKernels
            isOfFile = inode != 0
            let none = UInt8(ascii: "-")
            // Guard pages, and what an allocator has only reserved, are not accessible.
            isAccessible = read != none || write != none || execute != none
        }

        func worthwhileRange(_ extent: Extent) -> iovec? {
            guard isOfFile || isPrivateAnonymous && extent == .everything, isAccessible,
                end - start >= Self.shortest
            else { return nil }
            return iovec(iov_base: UnsafeMutableRawPointer(bitPattern: start), iov_len: Int(end - start))
        }
    }

    /// Ranges that are being passed to the kernel.
    private struct Batch {
        var ranges: [iovec] = []
        var next = 0
        var advised: UInt64 = 0
        var refused: UInt64 = 0

        /// The most that one call takes: `UIO_MAXIOV`.
        private static let size = 1024
        /// The number is the same everywhere that Debian releases; the headers of some C libraries are older.
        private static let pageOut: Int32 = 21

        /// Makes one call, or more if it is interrupted, for this many bytes at most.
        mutating func advise(
            _ pidfd: Int32, _ process: ProcessIdentity, most: Int
        ) throws(KernelFailure) {
            var part: [iovec] = []
            var left = most
            for range in ranges[next...].prefix(Self.size) where left > 0 {
                part.append(iovec(iov_base: range.iov_base, iov_len: min(range.iov_len, left)))
                left -= min(range.iov_len, left)
            }
            let result = part.withUnsafeBytes { ranges in
                var result: Int32
                repeat {
                    result = clinux_process_madvise(
                        pidfd, ranges.baseAddress, UInt(part.count), Self.pageOut)
                } while result == -EINTR
                return result
            }
            switch -result {
            case EINVAL, ENOMEM, EAGAIN, EIO:
                // The first range was refused: otherwise the kernel returns how far it got.
                refused += UInt64(ranges[next].iov_len)
                next += 1
            case let number where number > 0:
                throw KernelFailure(
                    operation: "process_madvise", subject: "process \(process)", errno: number)
            default:
                pass(UInt64(result))
            }
        }

        /// Continues after the accepted bytes, which may end within a range. Always advances.
        private mutating func pass(_ count: UInt64) {
            advised += count
            var rest = Int(count)
            while next < ranges.count, rest >= ranges[next].iov_len {
                rest -= ranges[next].iov_len
                next += 1
            }
            if rest > 0, next < ranges.count {
                ranges[next].iov_base = ranges[next].iov_base.map { $0 + rest }
                ranges[next].iov_len -= rest
            } else if count == 0 {
                next += 1
            }
        }
    }
}

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
            if line.skip("RssAnon:") {
                memory.anonymous = line.kibibytes() ?? 0
            } else if line.skip("RssFile:") {
                memory.files = line.kibibytes() ?? 0
            } else if line.skip("VmSwap:") {
                memory.swap = line.kibibytes() ?? 0
                return false
            }
            return true
        }
        return memory
    }
}

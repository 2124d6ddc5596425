import Glibc

/// How much memory the machine has left: `/proc/meminfo` (proc_meminfo(5)), kept open.
public final class MemoryInfo {
    /// The values, in bytes.
    public struct Figures: Equatable, Sendable {
        /// `MemTotal`: without the memory that the kernel itself occupies from the start.
        public var total: UInt64
        /// `MemAvailable`: the kernel's estimate of the memory that can be allocated without swapping.
        public var available: UInt64
        /// `SwapTotal`; 0 if there is no swap.
        public var swapTotal: UInt64
        /// `SwapFree`.
        public var swapFree: UInt64
    }

    private let file: KeptFile

    /// Opens `meminfo` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // The four lines are among the first twenty, of 28 bytes each.
        file = try KeptFile("\(root)/meminfo", capacity: 4096)
    }

    /// The values now.
    public func read() throws(KernelFailure) -> Figures {
        guard let figures = Figures(parsing: try file.read()) else { throw file.failure("parse", EBADMSG) }
        return figures
    }
}

extension MemoryInfo.Figures {
    /// Nil if a line is missing.
    init?(parsing text: UnsafeRawBufferPointer) {
        var total: UInt64?
        var available: UInt64?
        var swapTotal: UInt64?
        var swapFree: UInt64?
        text.forEachLine { line in
            if line.skip("MemTotal:") {
                total = line.kibibytes()
            } else if line.skip("MemAvailable:") {
                available = line.kibibytes()
            } else if line.skip("SwapTotal:") {
                swapTotal = line.kibibytes()
            } else if line.skip("SwapFree:") {
                swapFree = line.kibibytes()
                return false
            }
            return true
        }
        guard let total, let available, let swapTotal, let swapFree else { return nil }
        self.init(total: total, available: available, swapTotal: swapTotal, swapFree: swapFree)
    }
}

/// How many file pages are in memory, how many were evicted and read back, and for whom: `/proc/vmstat`, kept open.
public final class FileCacheCounters {
    /// The values, in bytes.
    public struct Figures: Equatable, Sendable {
        /// `nr_active_file` and `nr_inactive_file`: in memory now.
        public var cached: UInt64
        /// `pgsteal_file`, since Linux 5.8: evicted from memory since the machine started, also because of a cgroup's
        /// own limit.
        public var evicted: UInt64
        /// `pgsteal_kswapd`, `pgsteal_direct` and, since Linux 6.2, `pgsteal_khugepaged`: pages of every kind that were
        /// reclaimed since then because the machine's memory was short, and not because of a cgroup's own limit
        /// (mm/vmscan.c, `cgroup_reclaim`).
        public var reclaimed: UInt64
        /// `workingset_refault_file`, or `workingset_refault` before Linux 5.9: read again since then, after
        /// having been evicted. The kernel remembers about as many pages as there is memory.
        public var refaulted: UInt64
        /// `pgscan_direct` and `allocstall_*`, not in bytes. Both grow only when a process has to free memory itself
        /// before it gets any, because the machine's memory is short: not when `kswapd` frees it, and not because of a
        /// cgroup's own limit.
        public var searches: UInt64
    }

    private let file: KeptFile

    /// Opens `vmstat` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // Some 190 lines of at most 50 bytes.
        file = try KeptFile("\(root)/vmstat", capacity: 16384)
    }

    /// The values now. Throws `EBADMSG` if a line is missing.
    public func read() throws(KernelFailure) -> Figures {
        var cached: UInt64 = 0
        var evicted: UInt64?
        var reclaimed: UInt64 = 0
        var refaulted: UInt64?
        var searches: UInt64 = 0
        var missing = 7
        try file.readWhole().forEachLine { line in
            // Spelled out: walking a list of names would allocate.
            if line.skip("nr_active_file ") || line.skip("nr_inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.skip("workingset_refault_file ") || line.skip("workingset_refault ") {
                refaulted = line.unsigned()
            } else if line.skip("pgsteal_file ") {
                evicted = line.unsigned()
            } else if line.skip("pgsteal_kswapd ") || line.skip("pgsteal_direct ") {
                reclaimed &+= line.unsigned() ?? 0
            } else if line.skip("pgscan_direct ") {
                searches &+= line.unsigned() ?? 0
            } else {
                if line.skip("pgsteal_khugepaged ") {
                    reclaimed &+= line.unsigned() ?? 0
                } else if line.skip("allocstall_"), line.skip(fields: 1) {
                    searches &+= line.unsigned() ?? 0
                }
                return true
            }
            missing -= 1
            return true
        }
        guard missing == 0, let evicted, let refaulted else { throw file.failure("parse", EBADMSG) }
        let page = UInt64(getpagesize())
        return Figures(
            cached: cached &* page, evicted: evicted &* page, reclaimed: reclaimed &* page,
            refaulted: refaulted &* page, searches: searches)
    }
}

/// Free pages on the per-CPU lists, which avoid contention for the zone's lists: `/proc/zoneinfo`, kept open.
///
/// `MemAvailable` counts them neither as free nor as available (mm/show_mem.c, `si_mem_available`), although the kernel
/// empties the lists before it considers memory short (mm/page_alloc.c, `__alloc_pages_direct_reclaim`). A
/// process that frees much memory at once, for example when it exits, fills them first: with tens of
/// mebibytes for each CPU.
public final class CPUPageLists {
    private let file: KeptFile

    /// Opens `zoneinfo` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        let path = "\(root)/zoneinfo"
        // Its length stays about the same: it depends on the number of zones and of CPUs.
        var length = 0
        try Files.forEachLine(of: path) { line in
            length += line.rest.count + 1
            return true
        }
        file = try KeptFile(path, capacity: length + length / 4 + 4096)
    }

    /// The total of all lists now, in bytes.
    public func read() throws(KernelFailure) -> UInt64 {
        var pages: UInt64 = 0
        try file.readWhole().forEachLine { line in
            line.skipBlanks()
            if line.skip("count:"), let count = line.unsigned() { pages &+= count }
            return true
        }
        return pages &* UInt64(getpagesize())
    }
}

/// How many processes the kernel's OOM killer has killed since the machine started: `oom_kill` of
/// `/proc/vmstat`, since Linux 4.13, kept open. This includes kills in cgroups at their limit. There is no
/// notification of a change.
public final class KernelKills {
    private let file: KeptFile

    /// Opens `vmstat` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // Some 190 lines of at most 50 bytes.
        file = try KeptFile("\(root)/vmstat", capacity: 16384)
    }

    /// The value now. Throws `EBADMSG` if there is no such line.
    public func read() throws(KernelFailure) -> UInt64 {
        var kills: UInt64?
        try file.readWhole().forEachLine { line in
            guard line.skip("oom_kill ") else { return true }
            kills = line.unsigned()
            return false
        }
        guard let kills else { throw file.failure("parse", EBADMSG) }
        return kills
    }
}

import Glibc

/// How many file pages are in memory, how many were evicted and read back, and for whom: `/proc/vmstat`, kept open.
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
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
            if line.take("nr_active_file ") || line.take("nr_inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.take("workingset_refault_file ") || line.take("workingset_refault ") {
                refaulted = line.unsigned()
            } else if line.take("pgsteal_file ") {
                evicted = line.unsigned()
            } else if line.take("pgsteal_kswapd ") || line.take("pgsteal_direct ") {
                reclaimed &+= line.unsigned() ?? 0
            } else if line.take("pgscan_direct ") {
                searches &+= line.unsigned() ?? 0
            } else {
                if line.take("pgsteal_khugepaged ") {
                    reclaimed &+= line.unsigned() ?? 0
                } else if line.take("allocstall_"), line.skip(fields: 1) {
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

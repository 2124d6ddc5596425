import Glibc

/// How many file pages are in memory, and how many were evicted and read back: `/proc/vmstat`, kept open.
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class FileCacheCounters {
    /// The values, in bytes.
    public struct Figures: Equatable, Sendable {
        /// `nr_active_file` and `nr_inactive_file`: in memory now.
        public var cached: UInt64
        /// `pgsteal_file`, since Linux 5.8: evicted from memory since the machine started.
        public var evicted: UInt64
        /// `workingset_refault_file`, or `workingset_refault` before Linux 5.9: read again since then, after
        /// having been evicted. The kernel remembers about as many pages as there is memory.
        public var refaulted: UInt64
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
        var refaulted: UInt64?
        var missing = 4
        try file.readWhole().forEachLine { line in
            // Spelled out: walking a list of names would allocate.
            if line.take("nr_active_file ") || line.take("nr_inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.take("workingset_refault_file ") || line.take("workingset_refault ") {
                refaulted = line.unsigned()
            } else if line.take("pgsteal_file ") {
                evicted = line.unsigned()
            } else {
                return true
            }
            missing -= 1
            return missing > 0
        }
        guard missing == 0, let evicted, let refaulted else { throw file.failure("parse", EBADMSG) }
        let page = UInt64(getpagesize())
        return Figures(cached: cached &* page, evicted: evicted &* page, refaulted: refaulted &* page)
    }
}

import Glibc

/// Shows whether the processes of a cgroup wait for pages of their own to be read back: its `memory.stat` and
/// `memory.pressure`, kept open (Documentation/admin-guide/cgroup-v2.rst).
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class CgroupWorkingSet {
    /// The values of the files.
    public struct Figures: Equatable, Sendable {
        /// `active_file` and `inactive_file`: bytes in memory now.
        public var cached: UInt64
        /// `workingset_refault_file`, or `workingset_refault` before Linux 5.9: bytes read again since the cgroup
        /// began.
        public var refaulted: UInt64
        /// `some` of `memory.pressure`: microseconds in which some of its tasks waited for memory.
        public var waited: UInt64
    }

    private let statistics: KeptFile
    private let stalls: PressureFile

    /// Opens the files. Throws `ENOENT` if the cgroup is gone, or has no memory controller, or there is no PSI.
    public init(_ cgroup: Cgroup) throws(KernelFailure) {
        // Some seventy lines of at most 60 bytes.
        statistics = try KeptFile("\(cgroup.directory)/memory.stat", capacity: 8192)
        stalls = try PressureFile(path: "\(cgroup.directory)/memory.pressure")
    }

    /// The values now. Throws `ENODEV` once the cgroup is removed.
    public func read() throws(KernelFailure) -> Figures {
        var cached: UInt64 = 0
        var refaulted: UInt64 = 0
        var missing = 3
        try statistics.readWhole().forEachLine { line in
            if line.take("active_file ") || line.take("inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.take("workingset_refault_file ") || line.take("workingset_refault ") {
                refaulted = line.unsigned() ?? 0
            } else {
                return true
            }
            missing -= 1
            return missing > 0
        }
        guard missing == 0 else { throw statistics.failure("parse", EBADMSG) }
        return Figures(
            cached: cached, refaulted: refaulted &* UInt64(getpagesize()), waited: try stalls.read().some)
    }
}

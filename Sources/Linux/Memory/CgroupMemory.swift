import Glibc

/// How much memory a cgroup has left below its own limit: `memory.max`, `memory.current` and `memory.stat`
/// (Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"), kept open.
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out. Limits of the
/// cgroups above are theirs: ask them.
public final class CgroupMemory {
    /// What the files say, in bytes.
    public struct Figures: Equatable, Sendable {
        /// `memory.max`; nil for none.
        public var limit: UInt64?
        /// `memory.current`: of it and all below.
        public var current: UInt64
        /// What the kernel can take back without swap: `inactive_file`, `active_file` and
        /// `slab_reclaimable` of `memory.stat`.
        public var reclaimable: UInt64

        /// Figures as they were read.
        public init(limit: UInt64?, current: UInt64, reclaimable: UInt64) {
            self.limit = limit
            self.current = current
            self.reclaimable = reclaimable
        }

        /// What can be had before the limit is reached; nil where there is none. What MemAvailable is to the
        /// machine, without its discount for what must stay.
        public var headroom: UInt64? {
            guard let limit else { return nil }
            // The three are read one after the other: they need not fit each other.
            let occupied = current > reclaimable ? current - reclaimable : 0
            return limit > occupied ? limit - occupied : 0
        }
    }

    private let limit: KeptFile
    private let current: KeptFile
    private let statistics: KeptFile

    /// Opens the files. Throws `ENOENT` where the cgroup is gone, is the root, or has no memory controller.
    public init(_ cgroup: Cgroup) throws(KernelFailure) {
        limit = try KeptFile("\(cgroup.directory)/memory.max", capacity: 32)
        current = try KeptFile("\(cgroup.directory)/memory.current", capacity: 32)
        // Some seventy lines of at most 60 bytes.
        statistics = try KeptFile("\(cgroup.directory)/memory.stat", capacity: 8192)
    }

    /// What they say now. Throws `ENODEV` once the cgroup is removed.
    public func read() throws(KernelFailure) -> Figures {
        var text = Bytes(try limit.read())
        var most: UInt64?
        if !text.take("max") {
            most = text.unsigned()
            if most == nil { throw limit.failure("parse", EBADMSG) }
        }
        text = Bytes(try current.read())
        guard let now = text.unsigned() else { throw current.failure("parse", EBADMSG) }
        guard let reclaimable = Self.reclaimable(in: try statistics.read()) else {
            throw statistics.failure("parse", EBADMSG)
        }
        return Figures(limit: most, current: now, reclaimable: reclaimable)
    }

    private static func reclaimable(in text: UnsafeRawBufferPointer) -> UInt64? {
        var sum: UInt64 = 0
        var missing = 3
        text.forEachLine { line in
            guard
                line.take("inactive_file ") || line.take("active_file ") || line.take("slab_reclaimable ")
            else { return true }
            guard let bytes = line.unsigned() else { return false }
            let (total, overflow) = sum.addingReportingOverflow(bytes)
            if overflow { return false }
            sum = total
            missing -= 1
            return missing > 0
        }
        return missing == 0 ? sum : nil
    }
}

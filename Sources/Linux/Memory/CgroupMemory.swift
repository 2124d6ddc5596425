import Glibc

/// How much memory a cgroup has left below its own limit: `memory.max`, `memory.high`, `memory.current` and
/// `memory.stat` (Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"), kept open. On a hybrid machine,
/// where the controller is one of version 1: `memory.limit_in_bytes`, `memory.usage_in_bytes` and `memory.stat`
/// (Documentation/admin-guide/cgroup-v1/memory.rst).
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out. The limits of the
/// cgroups above are not included: see `CgroupLimits`.
public final class CgroupMemory {
    /// The values of the files, in bytes.
    public struct Figures: Equatable, Sendable {
        /// `memory.max` or `memory.high`, whichever is lower: above the latter, the kernel makes processes wait.
        public var limit: UInt64
        /// `memory.current`: of the cgroup and all below it.
        public var current: UInt64
        /// The memory that the kernel can reclaim without swap: `inactive_file`, `active_file` and
        /// `slab_reclaimable` of `memory.stat`.
        public var reclaimable: UInt64

        /// The bytes that can be allocated before the limit is reached. Corresponds to the machine's MemAvailable,
        /// without its deduction for memory that must stay.
        public var headroom: UInt64 {
            // The three are read one after the other, so they need not be consistent.
            let occupied = current > reclaimable ? current - reclaimable : 0
            return limit > occupied ? limit - occupied : 0
        }
    }

    private let limit: KeptFile
    /// Version 2 only.
    private let high: KeptFile?
    private let current: KeptFile
    private let statistics: KeptFile
    /// Version 1: `memory.stat` counts the cgroups below only on the lines of `total_`, and counts no slabs.
    private let isVersionOne: Bool

    /// Opens the files. Throws `ENOENT` if the cgroup is gone, is the root, or has no memory controller.
    public convenience init(_ cgroup: Cgroup) throws(KernelFailure) {
        try self.init(
            cgroup.directory, limit: "memory.max", high: "memory.high", current: "memory.current",
            isVersionOne: false)
    }

    /// The same for the version 1 controller's cgroup with the same path: systemd makes the same cgroups in both
    /// hierarchies, side by side, and PSI belongs to the unified one. Throws `ENOENT` if there is no such controller or cgroup.
    public convenience init(versionOneCounterpartOf cgroup: Cgroup) throws(KernelFailure) {
        try self.init(
            "\(cgroup.hierarchy.mountPoint)/../memory\(cgroup.path)", limit: "memory.limit_in_bytes",
            high: nil,
            current: "memory.usage_in_bytes", isVersionOne: true)
    }

    private init(
        _ directory: String, limit: String, high: String?, current: String, isVersionOne: Bool
    ) throws(KernelFailure) {
        self.limit = try KeptFile("\(directory)/\(limit)", capacity: 32)
        if let high {
            self.high = try KeptFile("\(directory)/\(high)", capacity: 32)
        } else {
            self.high = nil
        }
        self.current = try KeptFile("\(directory)/\(current)", capacity: 32)
        // Some seventy lines of at most 60 bytes.
        statistics = try KeptFile("\(directory)/memory.stat", capacity: 8192)
        self.isVersionOne = isVersionOne
    }

    /// The values now; nil if there is no limit. Throws `ENODEV` once the cgroup is removed.
    public func read() throws(KernelFailure) -> Figures? {
        var most = try value(of: limit)
        if let high, let number = try value(of: high) { most = min(most ?? number, number) }
        guard let most else { return nil }
        var text = Bytes(try current.read())
        guard let now = text.unsigned() else { throw current.failure("parse", EBADMSG) }
        guard let reclaimable = reclaimable(in: try statistics.read()) else {
            throw statistics.failure("parse", EBADMSG)
        }
        return Figures(limit: most, current: now, reclaimable: reclaimable)
    }

    /// nil: no limit.
    private func value(of file: KeptFile) throws(KernelFailure) -> UInt64? {
        var text = Bytes(try file.read())
        if text.take("max") { return nil }
        guard let number = text.unsigned() else { throw file.failure("parse", EBADMSG) }
        // In version 1, the greatest possible number of whole pages means no limit.
        return number < UInt64(Int64.max) - 65_535 ? number : nil
    }

    private func reclaimable(in text: UnsafeRawBufferPointer) -> UInt64? {
        var sum: UInt64 = 0
        var missing = isVersionOne ? 2 : 3
        text.forEachLine { line in
            if isVersionOne, !line.take("total_") { return true }
            // Spelled out: walking a list of names would allocate.
            guard
                line.take("inactive_file ") || line.take("active_file ")
                    || (!isVersionOne && line.take("slab_reclaimable "))
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

extension Cgroup {
    /// `memory.current`: bytes that the cgroup and all below it occupy. Throws `ENOENT` without a memory controller.
    public func memoryCurrent() throws(KernelFailure) -> UInt64 {
        try readOnce("memory.current") { $0.unsigned() }
    }

    /// The bytes, in memory and in swap, that the end of all its processes would free: `anon` of
    /// `memory.stat` and `memory.swap.current` (Documentation/admin-guide/cgroup-v2.rst), of the cgroup and
    /// all below it. A page that several processes share after fork(2) counts once.
    ///
    /// Throws `ENOENT` without a memory controller. Without swap accounting, only memory counts.
    public func releasableMemory() throws(KernelFailure) -> UInt64 {
        // `anon` is the first of some seventy lines: what readOnce cuts off is not needed.
        let anonymous: UInt64 = try readOnce("memory.stat") { text in
            var found: UInt64?
            text.rest.forEachLine { line in
                guard line.take("anon ") else { return true }
                found = line.unsigned()
                return false
            }
            return found
        }
        let swapped = try? readOnce("memory.swap.current") { $0.unsigned() }
        return anonymous &+ (swapped ?? 0)
    }
}

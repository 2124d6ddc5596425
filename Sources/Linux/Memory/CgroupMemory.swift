import Glibc

/// How much memory a cgroup has left below its own limit: `memory.max`, `memory.high`, `memory.current` and
/// `memory.stat` (Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"), kept open. On a hybrid machine,
/// where the controller is one of version 1: `memory.limit_in_bytes`, `memory.usage_in_bytes` and `memory.stat`
/// (Documentation/admin-guide/cgroup-v1/memory.rst).
/// The limits of the cgroups above are not included: see `CgroupLimits`.
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
        if text.skip("max") { return nil }
        guard let number = text.unsigned() else { throw file.failure("parse", EBADMSG) }
        // In version 1, the greatest possible number of whole pages means no limit.
        return number < UInt64(Int64.max) - 65_535 ? number : nil
    }

    private func reclaimable(in text: UnsafeRawBufferPointer) -> UInt64? {
        var sum: UInt64 = 0
        var missing = isVersionOne ? 2 : 3
        text.forEachLine { line in
            if isVersionOne, !line.skip("total_") { return true }
            // Spelled out: walking a list of names would allocate.
            guard
                line.skip("inactive_file ") || line.skip("active_file ")
                    || (!isVersionOne && line.skip("slab_reclaimable "))
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
                guard line.skip("anon ") else { return true }
                found = line.unsigned()
                return false
            }
            return found
        }
        let swapped = try? readOnce("memory.swap.current") { $0.unsigned() }
        return anonymous &+ (swapped ?? 0)
    }
}

/// How much memory a cgroup has left below its own limit and those of all cgroups above it.
/// In a container, the topmost may have a limit, too.
public final class CgroupLimits {
    /// The limit that leaves least.
    public struct Figures: Equatable, Sendable {
        /// The values of the cgroup that has the limit.
        public var memory: CgroupMemory.Figures
        /// Whether that is the cgroup itself, and not one above it.
        public var isOwn: Bool
    }

    /// The cgroup itself, if it has a memory controller, and those above it.
    private let levels: [(memory: CgroupMemory, isOwn: Bool)]

    /// Opens the files. nil: neither the cgroup nor one above it has a memory controller, of version 2 or 1.
    public init?(_ cgroup: Cgroup) {
        var levels: [(memory: CgroupMemory, isOwn: Bool)] = []
        for level in [cgroup] + cgroup.ancestors {
            let memory =
                (try? CgroupMemory(level)) ?? (try? CgroupMemory(versionOneCounterpartOf: level))
            if let memory { levels.append((memory, level == cgroup)) }
        }
        if levels.isEmpty { return nil }
        self.levels = levels
    }

    /// The values now; nil if there is no limit below `total`, the machine's memory. Throws `ENODEV` once the cgroup is
    /// removed.
    public func read(below total: UInt64) throws(KernelFailure) -> Figures? {
        var least: Figures?
        // An iterator would allocate.
        for index in levels.indices {
            let level = levels[index]
            guard let memory = try level.memory.read(), memory.limit < total else { continue }
            if let known = least, known.memory.headroom <= memory.headroom { continue }
            least = Figures(memory: memory, isOwn: level.isOwn)
        }
        return least
    }
}

/// Shows whether the processes of a cgroup wait for pages of their own to be read back: its `memory.stat` and
/// `memory.pressure`, kept open (Documentation/admin-guide/cgroup-v2.rst).
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
            if line.skip("active_file ") || line.skip("inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.skip("workingset_refault_file ") || line.skip("workingset_refault ") {
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

extension Cgroup {
    /// Makes the kernel take page cache that no process has mapped from the cgroup and from all below it
    /// (`memory.reclaim`, since Linux 5.19; Documentation/admin-guide/cgroup-v2.rst).
    ///
    /// The kernel cannot be told to spare mapped pages. Then it ignores that processes in other cgroups use a page
    /// (mm/rmap.c, `folio_referenced`), and a page that many map belongs to the cgroup that read it first. Therefore
    /// nothing is taken if more than a quarter of the cache is mapped, and never more bytes than are not mapped.
    ///
    /// This may take long, so the deciding thread must not call it. Throws `ENOENT` if the cgroup is gone,
    /// the kernel is older, or there is no memory controller.
    ///
    /// - Returns: by how many bytes `memory.current` fell. Other changes in the cgroup meanwhile count, too.
    public func reclaimUnmappedFiles() throws(KernelFailure) -> UInt64 {
        let (cached, mapped) = try cachedFiles()
        if cached == 0 || mapped > cached / 4 { return 0 }
        let before = try memoryCurrent()
        do throws(KernelFailure) {
            try demand("\(cached - mapped) swappiness=0")
        } catch {
            // Linux 6.8 and older do not accept a swappiness here.
            guard error.errno == EINVAL else { throw error }
            try demand("\(cached - mapped)")
        }
        let after = try memoryCurrent()
        return before > after ? before - after : 0
    }

    /// Bytes of files that the cgroup and all below it have in memory, and how many of them some process has mapped:
    /// `active_file` and `inactive_file`, and `file_mapped`, of `memory.stat`. The latter includes shared memory.
    private func cachedFiles() throws(KernelFailure) -> (cached: UInt64, mapped: UInt64) {
        var (cached, mapped): (UInt64, UInt64) = (0, 0)
        try Files.forEachLine(of: "\(directory)/memory.stat") { line in
            if line.skip("active_file ") || line.skip("inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.skip("file_mapped ") {
                mapped = line.unsigned() ?? 0
            }
            return true
        }
        return (cached, mapped)
    }

    private func demand(_ text: String) throws(KernelFailure) {
        let path = "\(directory)/memory.reclaim"
        let file = try Descriptor.open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW)
        do throws(KernelFailure) {
            try Files.write(text, to: file, named: path)
        } catch {
            // The kernel has found less than the requested amount, or a signal came in between.
            guard error.errno == EAGAIN || error.errno == EINTR else { throw error }
        }
    }
}

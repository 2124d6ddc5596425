import Glibc

/// How much memory a cgroup of the version 1 memory controller has left, kept open: `memory.limit_in_bytes`,
/// `memory.usage_in_bytes` and `memory.stat` (Documentation/admin-guide/cgroup-v1/memory.rst). On a hybrid machine
/// systemd makes the same cgroups in both hierarchies, and PSI is the unified one's.
///
/// For one thread at a time. Reading allocates nothing.
public final class LegacyCgroupMemory {
    private let limit: KeptFile
    private let usage: KeptFile
    private let statistics: KeptFile

    /// Opens the files of the cgroup with the same path. Throws `ENODEV` where no version 1 memory controller is
    /// mounted, `ENOENT` where it has no such cgroup.
    public init(counterpartOf cgroup: Cgroup, proc: Proc = Proc()) throws(KernelFailure) {
        let directory = try Self.mountPoint(proc) + cgroup.path
        limit = try KeptFile("\(directory)/memory.limit_in_bytes", capacity: 32)
        usage = try KeptFile("\(directory)/memory.usage_in_bytes", capacity: 32)
        statistics = try KeptFile("\(directory)/memory.stat", capacity: 8192)
    }

    /// What they say now.
    public func read() throws(KernelFailure) -> CgroupMemory.Figures {
        var text = Bytes(try limit.read())
        guard let most = text.unsigned() else { throw limit.failure("parse", EBADMSG) }
        text = Bytes(try usage.read())
        guard let current = text.unsigned() else { throw usage.failure("parse", EBADMSG) }
        var reclaimable: UInt64 = 0
        try statistics.read().forEachLine { line in
            if line.take("total_inactive_file ") || line.take("total_active_file ") {
                reclaimable &+= line.unsigned() ?? 0
            }
            return true
        }
        // No limit is the greatest number of whole pages there is.
        let isLimited = most < UInt64(Int64.max) - 65_535
        return CgroupMemory.Figures(limit: isLimited ? most : nil, current: current, reclaimable: reclaimable)
    }

    private static func mountPoint(_ proc: Proc) throws(KernelFailure) -> String {
        let path = "\(proc.root)/self/mountinfo"
        var found: String?
        try Files.forEachLine(of: path) { line in
            // Such as `33 31 0:30 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory`.
            let fields = String(decoding: line, as: UTF8.self).split(separator: " ")
            guard fields.count > 9, fields[3] == "/", let dash = fields[6...].firstIndex(of: "-"),
                dash + 3 < fields.count, fields[dash + 1] == "cgroup",
                fields[dash + 3].split(separator: ",").contains("memory")
            else { return true }
            found = String(fields[4])
            return false
        }
        guard let found else {
            throw KernelFailure(operation: "find the memory controller in", subject: path, errno: ENODEV)
        }
        return found
    }
}

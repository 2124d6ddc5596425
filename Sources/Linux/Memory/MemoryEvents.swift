import Glibc

/// Tells when `memory.events` of a cgroup changes: by a descriptor to be polled for `EPOLLPRI`, as
/// `CgroupEvents` does (Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files").
///
/// It counts what happened in the cgroup and below, and stays ready until `read()`. A second notification
/// within 10 ms of one is held back until they are over. For one thread at a time; reading allocates nothing.
public final class MemoryEvents {
    /// How often each happened since the cgroup was made.
    public struct Counts: Equatable, Sendable {
        /// Memory was held back though the cgroup was over `memory.high`.
        public var high: UInt64 = 0
        /// It was about to go over `memory.max`.
        public var max: UInt64 = 0
        /// It was at its limit, and there was nothing to take back.
        public var oom: UInt64 = 0
        /// The kernel killed a process of it, for its limit's sake or the machine's.
        public var oomKill: UInt64 = 0
        /// The kernel killed all of it at once (`memory.oom.group`); 0 before Linux 5.17.
        public var oomGroupKill: UInt64 = 0

        /// Nothing happened.
        public init() {}

        /// Lines of a key and a number, in any order, with keys that we do not know; nil without `oom_kill`
        /// (since Linux 4.13).
        init?(parsing text: UnsafeRawBufferPointer) {
            var kills: UInt64?
            text.forEachLine { line in
                if line.take("high ") {
                    high = line.unsigned() ?? 0
                } else if line.take("max ") {
                    max = line.unsigned() ?? 0
                } else if line.take("oom ") {
                    oom = line.unsigned() ?? 0
                } else if line.take("oom_kill ") {
                    kills = line.unsigned()
                } else if line.take("oom_group_kill ") {
                    oomGroupKill = line.unsigned() ?? 0
                }
                return true
            }
            guard let kills else { return nil }
            oomKill = kills
        }
    }

    /// Whose events they are.
    public let cgroup: Cgroup
    private let file: KeptFile

    /// Opens the file and reads it, so that only what changes from now on makes it ready.
    ///
    /// Throws `ENOENT` where the cgroup is gone, is the root, or has no memory controller.
    public init(_ cgroup: Cgroup) throws(KernelFailure) {
        self.cgroup = cgroup
        file = try KeptFile("\(cgroup.directory)/memory.events", capacity: 512)
        _ = try read()
    }

    /// To be polled for `EPOLLPRI`; ours, and closed with this value.
    public var descriptor: Int32 { file.descriptor }

    /// What the file says now; the descriptor is no longer ready until that changes.
    ///
    /// Throws `ENODEV` once the cgroup is removed.
    @discardableResult
    public func read() throws(KernelFailure) -> Counts {
        guard let counts = Counts(parsing: try file.read()) else { throw file.failure("parse", EBADMSG) }
        return counts
    }
}

/// How many processes the kernel has killed for want of memory since the machine started: `oom_kill` of
/// `/proc/vmstat`, since Linux 4.13, kept open. In cgroups at their limit, too. Nobody tells when it changes.
///
/// For one thread at a time. Reading allocates nothing.
public final class KernelKills {
    private let file: KeptFile

    /// Opens `vmstat` below `root`, where proc is mounted, or of a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // Some 190 lines of at most 50 bytes.
        file = try KeptFile("\(root)/vmstat", capacity: 16384)
    }

    /// What it says now. Throws `EBADMSG` where there is no such line.
    public func read() throws(KernelFailure) -> UInt64 {
        var kills: UInt64?
        try file.readWhole().forEachLine { line in
            guard line.take("oom_kill ") else { return true }
            kills = line.unsigned()
            return false
        }
        guard let kills else { throw file.failure("parse", EBADMSG) }
        return kills
    }
}

/// Reports that a process begins to wait for a file lock, as the kernel sees it. Uses perf events on the tracepoints of
/// fs/locks.c, one of each for every online CPU, filtered in the kernel.
///
/// A hint only means that `FileLocks` should be read now. It comes in the waiter's context, once the waiter
/// is in the kernel's list and before it sleeps. A free lock causes no hint, and neither does a request that
/// does not wait (`LOCK_NB`, `F_SETLK`). A wait that continues after a signal, or behind another waiter that
/// came first, causes another hint. Every process on the machine causes hints, so limit how often you read
/// the locks.
///
/// Not detected: locks that a network or FUSE file system arbitrates itself, which `/proc/locks` does not
/// show either, and waits on a CPU that comes online later.
public final class LockTrace {
    /// The tracepoint and its filter for each kind of wait.
    ///
    /// `ret` is the result of the request: 0 for a lock that was acquired, a negative errno, or `FILE_LOCK_DEFERRED`, 1
    /// (include/linux/filelock.h), for a request queued behind another. `posix_lock_inode` also covers the locks of
    /// open files (`F_OFD_SETLKW`). Only a waiter reaches `break_lease_block`.
    private static let waits: [(name: String, filter: String?)] = [
        ("filelock:posix_lock_inode", "ret > 0"), ("filelock:flock_lock_inode", "ret > 0"),
        ("filelock:break_lease_block", nil),
    ]
    static let tracepoints = waits.map(\.name)

    private let rings: [PerfRing]

    /// Opens the trace. Read `FileLocks` once afterwards: a process that was already waiting causes no hint.
    ///
    /// `root` is where tracefs is mounted; without it the usual places are tried, then a mount attached nowhere. Needs
    /// `CAP_PERFMON`, and root's access to tracefs. Throws `ENOENT` if the kernel has no such tracepoint or cannot
    /// trace, `EACCES` or `EPERM` if we may not, otherwise the kernel's error. In these cases read `FileLocks` at
    /// intervals.
    ///
    /// Pause the trace when no hints are needed: while it is on, each request for a file lock on the machine
    /// costs its caller the time of the filter. Closing the trace takes the kernel some 100 ms.
    public init(tracefs root: String? = nil, handed: HandedOver = HandedOver()) throws(KernelFailure) {
        let found = try Tracepoint.find(Self.tracepoints, root: root)
        let sources = zip(found, Self.waits).map { PerfRing.Source(tracepoint: $0, filter: $1.filter) }
        // One page holds some forty records, and only the first one matters.
        rings = try PerfRing.rings(sources, on: CPUList.online(), handed: handed)
    }

    /// One descriptor for each tracepoint and CPU, to be polled for readability. They stay open as long as this value
    /// lives.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Lets hints come, or stops them; one that has already come can still be drained. Read `FileLocks` once after they
    /// were turned on: a process that began to wait meanwhile causes no hint.
    public func turn(on isOn: Bool) throws(KernelFailure) {
        for ring in rings { try ring.turn(on: isOn) }
    }

    /// Returns whether a process has begun to wait since the last time.
    public func drain() -> Bool { rings.reduce(false) { $1.discard() || $0 } }
}

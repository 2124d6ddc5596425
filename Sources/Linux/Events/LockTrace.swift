import Glibc

/// Somebody begins to wait for a file lock, as the kernel sees it: perf events on the tracepoints of
/// fs/locks.c, one of each for every online CPU, filtered in the kernel.
///
/// A hint says only: look at `FileLocks` now. It comes in the waiter's context, once the waiter is in the
/// kernel's list and before it sleeps. Locks that are free wake nobody, nor does a request that does not
/// wait (`LOCK_NB`, `F_SETLK`). A wait that goes on after a signal, or behind another waiter who came first,
/// is hinted again, and so is everybody's on the machine: look no more often than you can afford.
///
/// Not seen: what a network or FUSE file system arbitrates itself, which `/proc/locks` does not show
/// either, and a CPU that goes online later.
public final class LockTrace {
    /// The tracepoint and its filter for each kind of wait.
    ///
    /// `ret` is what the request comes to: 0 for a lock that was got, a negative errno, or
    /// `FILE_LOCK_DEFERRED`, 1 (include/linux/filelock.h): in line behind another. `posix_lock_inode` is for
    /// the locks of open files (`F_OFD_SETLKW`) too. `break_lease_block` is met only by those who wait.
    private static let waits: [(name: String, filter: String?)] = [
        ("filelock:posix_lock_inode", "ret > 0"), ("filelock:flock_lock_inode", "ret > 0"),
        ("filelock:break_lease_block", nil),
    ]
    static let tracepoints = waits.map(\.name)

    private let rings: [PerfRing]

    /// Opens the trace. Read `FileLocks` once after it: who waited before is not hinted.
    ///
    /// `root` is where tracefs is mounted; without it the usual places are tried, then a mount attached
    /// nowhere. Needs `CAP_PERFMON`, and root's eyes for tracefs. Throws `ENOENT` where the kernel has no such
    /// tracepoint or cannot trace, `EACCES` or `EPERM` where we may not, else what the kernel gave: read
    /// `FileLocks` at intervals then.
    ///
    /// Pause it where no hint is of use: while it is on, each request for a file lock on the machine costs
    /// its caller the filter. To let it go takes the kernel some 100 ms.
    public static func open(
        tracefs root: String? = nil, handed: HandedOver = HandedOver()
    ) throws(KernelFailure) -> LockTrace {
        let found = try Tracepoint.find(tracepoints, root: root)
        let sources = zip(found, waits).map { PerfRing.Source(tracepoint: $0, filter: $1.filter) }
        // One page is some forty records: of more than one, only the first matters.
        return LockTrace(try PerfRing.rings(sources, on: CPUList.online(), handed: handed))
    }

    private init(_ rings: [PerfRing]) {
        self.rings = rings
    }

    /// One for each CPU, to be polled for readability; they live as long as this value.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Ends the hints until `resume()`. One that has come already stays to be drained.
    public func pause() throws(KernelFailure) {
        for ring in rings { try ring.turn(on: false) }
    }

    /// Hints come again. Read `FileLocks` once after it: who began to wait meanwhile is not hinted.
    public func resume() throws(KernelFailure) {
        for ring in rings { try ring.turn(on: true) }
    }

    /// Takes what is in the ring of one of `descriptors`: whether somebody began to wait since the last time.
    public func drain(_ descriptor: Int32) -> Bool {
        guard let ring = rings.first(where: { $0.descriptor == descriptor }) else {
            preconditionFailure("a descriptor of another trace")
        }
        return ring.discard()
    }
}

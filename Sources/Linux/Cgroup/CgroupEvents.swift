import Glibc

/// Tells when `cgroup.events` of a cgroup changes: by a descriptor to be polled for `EPOLLPRI`.
///
/// The kernel wakes pollers of the file at every change of a value in it (cgroup-v2.rst, "[Un]populated
/// Notification"). We take that and not inotify(7), which tells the same: one descriptor is watch and content
/// in one, nothing is queued and so nothing overflows, and a change between two reads cannot be missed,
/// because each open file keeps the count of the change that it last read (fs/kernfs/file.c). For the same
/// reason it stays ready, with `EPOLLERR` and `EPOLLIN` along with `EPOLLPRI`, until `read()`; neither of
/// the two is a failure here. Watch it for `EPOLLPRI` alone: `EPOLLIN` is always set.
///
/// A second notification within 10 ms of one is held back until they are over
/// (`CGROUP_FILE_NOTIFY_MIN_INTV`), so `read()` once right after a write as well. The removal of the cgroup
/// wakes nobody: it was not populated before.
public final class CgroupEvents {
    /// Whose events they are.
    public let cgroup: Cgroup
    private let file: KeptFile

    /// Opens the file and reads it, so that only what changes from now on makes it ready.
    public init(_ cgroup: Cgroup) throws(KernelFailure) {
        self.cgroup = cgroup
        file = try KeptFile("\(cgroup.directory)/cgroup.events", capacity: 512)
        _ = try read()
    }

    /// To be polled for `EPOLLPRI`; ours, and closed with this value.
    public var descriptor: Int32 { file.descriptor }

    /// What the file says now; the descriptor is no longer ready until that changes.
    ///
    /// Throws `ENODEV` once the cgroup is removed.
    @discardableResult
    public func read() throws(KernelFailure) -> Cgroup.Events {
        guard let events = Cgroup.Events(parsing: try file.read()) else {
            throw file.failure("parse", EBADMSG)
        }
        return events
    }
}

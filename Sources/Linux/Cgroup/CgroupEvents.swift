import Glibc

/// Reports that `cgroup.events` of a cgroup has changed, through a descriptor to be polled for `EPOLLPRI`.
///
/// The kernel wakes pollers of the file at every change of a value in it (cgroup-v2.rst, "[Un]populated Notification").
/// We use that instead of inotify(7), which reports the same: one descriptor is both watch and content, nothing is
/// queued and so nothing overflows, and a change between two reads cannot be missed, because each open file keeps the
/// count of the change that it last read (fs/kernfs/file.c). For the same reason it stays ready, with `EPOLLERR` and
/// `EPOLLIN` along with `EPOLLPRI`, until `read()`; neither of the two is a failure here. Watch it only for `EPOLLPRI`:
/// `EPOLLIN` is always set.
///
/// A second notification within 10 ms of another is held back until they are over (`CGROUP_FILE_NOTIFY_MIN_INTV`), so
/// also call `read()` once right after a write. The removal of the cgroup causes no notification: it was not populated
/// before.
public final class CgroupEvents {
    /// The cgroup whose events are reported.
    public let cgroup: Cgroup
    private let file: KeptFile

    /// Opens the file and reads it, so that only later changes make it ready.
    public init(_ cgroup: Cgroup) throws(KernelFailure) {
        self.cgroup = cgroup
        file = try KeptFile("\(cgroup.directory)/cgroup.events", capacity: 512)
        _ = try read()
    }

    /// To be polled for `EPOLLPRI`. Owned by this value, and closed with it.
    public var descriptor: Int32 { file.descriptor }

    /// The values now; the descriptor is no longer ready until they change.
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

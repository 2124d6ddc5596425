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
    private let file: Descriptor

    /// Opens the file and reads it, so that only what changes from now on makes it ready.
    public init(_ cgroup: Cgroup) throws(KernelFailure) {
        self.cgroup = cgroup
        file = try Descriptor.open("\(cgroup.directory)/cgroup.events")
        _ = try read()
    }

    /// To be polled for `EPOLLPRI`; ours, and closed with this value.
    public var descriptor: Int32 { file.rawValue }

    /// What the file says now; the descriptor is no longer ready until that changes.
    ///
    /// Throws `ENODEV` once the cgroup is removed.
    @discardableResult
    public func read() throws(KernelFailure) -> Cgroup.Events {
        let number = file.rawValue
        let result: Result<Cgroup.Events?, ErrorNumber> =
            withUnsafeTemporaryAllocation(byteCount: 512, alignment: 8) { buffer in
                let count = pread(number, buffer.baseAddress, buffer.count, 0)
                guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
                return .success(Cgroup.Events(parsing: UnsafeRawBufferPointer(rebasing: buffer[..<count])))
            }
        switch result {
        case .failure(let error): throw failure("read", error.value)
        case .success(.none): throw failure("parse", EBADMSG)
        case .success(.some(let events)): return events
        }
    }

    private func failure(_ operation: String, _ number: Int32) -> KernelFailure {
        KernelFailure(operation: operation, subject: "\(cgroup.directory)/cgroup.events", errno: number)
    }
}

import Glibc

/// Documentation/admin-guide/cgroup-v2.rst of the kernel, "Core Interface Files".
extension Cgroup {
    /// The contents of `cgroup.events`.
    public struct Events: Equatable, Sendable {
        /// Whether it or a cgroup below holds a living process.
        public let isPopulated: Bool
        /// Whether it is frozen, no matter by which process: by the file of this cgroup or of one above it.
        /// Cgroups below it may not be frozen yet: see `unfrozenDescendants()`.
        public let isFrozen: Bool
    }

    /// Reads `cgroup.events` once. The root of the hierarchy has none (`ENOENT`).
    public func events() throws(KernelFailure) -> Events {
        try readOnce("cgroup.events") { Events(parsing: $0.rest) }
    }

    /// Whether it is frozen now, no matter by which process.
    public func isFrozen() throws(KernelFailure) -> Bool {
        try events().isFrozen
    }

    /// The cgroups below it that are not frozen yet. Must be called when the cgroup itself is frozen.
    ///
    /// For a cgroup that has both processes of its own and cgroups below, the kernel reports `frozen 1` once its own
    /// processes are frozen or once all below are, whichever is first (kernel/cgroup/freezer.c, `cgroup_update_frozen`,
    /// `cgroup_propagate_frozen`), and sends no notification when the rest follows: watch the events of the returned
    /// cgroups then. Its own processes may be the late ones, for a moment; no file shows that.
    public func unfrozenDescendants() throws(KernelFailure) -> [Cgroup] {
        var found: [Cgroup] = []
        for cgroup in try descendants().cgroups {
            do throws(KernelFailure) {
                if try !cgroup.isFrozen() { found.append(cgroup) }
            } catch {
                if !error.isNoSuchCgroup { throw error }
            }
        }
        return found
    }

    /// Whether its own `cgroup.freeze` requests a freeze. The kernel does not report which process wrote it.
    public func wantsFrozen() throws(KernelFailure) -> Bool {
        try readOnce("cgroup.freeze") { $0.unsigned().map { $0 != 0 } }
    }

    /// Makes the kernel freeze all processes in it and below. This takes effect a moment later: read
    /// `events()` once now, then wait with `CgroupEvents`. Processes that join later are frozen, too; SIGKILL
    /// still works.
    public func freeze() throws(KernelFailure) {
        try write("1", to: "cgroup.freeze")
    }

    /// Withdraws the request to freeze. While a cgroup above it is frozen, it stays frozen.
    public func thaw() throws(KernelFailure) {
        try write("0", to: "cgroup.freeze")
    }

    /// Sends SIGKILL to all processes in it and below, frozen or not, and to what they fork meanwhile (since Linux 5.14).
    public func kill() throws(KernelFailure) {
        try write("1", to: "cgroup.kill")
    }

    /// One read of a file of the cgroup.
    func readOnce<Value>(
        _ name: String, _ parse: (inout Bytes) -> Value?
    ) throws(KernelFailure) -> Value {
        let path = "\(directory)/\(name)"
        switch Files.readOnce(path, parse) {
        case .failure(let number):
            throw KernelFailure(operation: "read", subject: path, errno: number.value)
        case .success(.none): throw KernelFailure(operation: "parse", subject: path, errno: EBADMSG)
        case .success(.some(let value)): return value
        }
    }

    /// One write to a file of the cgroup.
    func write(_ text: StaticString, to name: String) throws(KernelFailure) {
        let path = "\(directory)/\(name)"
        let file = try Descriptor.open(path, O_WRONLY | O_NOFOLLOW)
        let written = Glibc.write(file.rawValue, text.utf8Start, text.utf8CodeUnitCount)
        guard written == text.utf8CodeUnitCount else {
            let number = written < 0 ? errno : EIO
            throw KernelFailure(operation: "write", subject: path, errno: number)
        }
    }
}

extension Cgroup.Events {
    /// Takes lines of a key and a number, in any order, including unknown keys; nil if a value is missing.
    init?(parsing text: UnsafeRawBufferPointer) {
        var populated: UInt64?
        var frozen: UInt64?
        text.forEachLine { line in
            if line.skip("populated ") {
                populated = line.unsigned()
            } else if line.skip("frozen ") {
                frozen = line.unsigned()
            }
            return true
        }
        guard let populated, let frozen else { return nil }
        self.init(isPopulated: populated != 0, isFrozen: frozen != 0)
    }
}

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

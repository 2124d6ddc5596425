import Glibc

/// Kills an application by its own cgroup, and nothing else with it.
///
/// Everything is asked at this moment: that the directory is the one that was chosen before, and that the
/// extent is the application's (`CgroupExtent`). Whoever comes in between the answer and the kill is killed,
/// too: freeze it first where that matters, then nobody is born into it.
public struct CgroupKill: ~Copyable {
    /// What was done.
    public enum Outcome: Equatable, Sendable {
        /// All in it have SIGKILL. The rest of the application is outside: one by one.
        case killed(remainder: [ProcessIdentity])
        /// It is not the application's own: nothing was done.
        case refused(CgroupExtent.Reason)
    }

    /// What came of lifting the limit of processor time.
    public enum CPULimit: Equatable, Sendable {
        /// It is lifted. Nobody puts it back: who dies needs none.
        case lifted
        /// There was none, or no cpu controller.
        case none
    }

    /// The cgroup.
    public let cgroup: Cgroup
    /// Its directory, held: another that is made in its place is not meant.
    private let directory: Descriptor

    /// Holds the cgroup's directory. Throws `ENOENT` if it is gone, and `ESTALE` where it is not the one of
    /// this `Cgroup.identifier()`.
    public init(_ cgroup: Cgroup, identifier: UInt64) throws(KernelFailure) {
        let directory = try Descriptor.open(cgroup.directory, flags: O_DIRECTORY | O_NOFOLLOW)
        guard try Self.identifier(of: directory, cgroup) == identifier else {
            throw Self.stale(cgroup)
        }
        self.cgroup = cgroup
        self.directory = directory
    }

    /// Judges it, and kills all in it and below by `cgroup.kill` (since Linux 5.14; `ENOENT` before).
    ///
    /// `main`, `uid`, `daemon` and `isForeign` as `CgroupExtent.judge` takes them. Throws `ESTALE` if the
    /// directory was replaced by another, and what looking at it throws.
    public func kill(
        main: ProcessIdentity, owner uid: UInt32, daemon: Cgroup?, proc: Proc = Proc(),
        isForeign: (ProcessIdentity) -> Bool
    ) throws(KernelFailure) -> Outcome {
        let snapshot = try CgroupSnapshot(of: cgroup, main: main, proc: proc, isForeign: isForeign)
        // The snapshot was made by the path.
        guard try cgroup.identifier() == Self.identifier(of: directory, cgroup) else {
            throw Self.stale(cgroup)
        }
        switch CgroupExtent.judge(snapshot, main: main, owner: uid, daemon: daemon, isForeign: isForeign) {
        case .refused(let reason): return .refused(reason)
        case .own(let remainder):
            try write("1", to: "cgroup.kill")
            return .killed(remainder: remainder)
        }
    }

    /// Takes the limit of processor time off (`cpu.max`), so that its processes die quickly; only its own,
    /// not those of the cgroups above, which hold others.
    @discardableResult
    public func liftCPULimit() throws(KernelFailure) -> CPULimit {
        let path = "\(cgroup.directory)/cpu.max"
        let isLimited = Files.readOnce(path) { text in
            var bytes = Bytes(text)
            return !bytes.take("max")
        }
        switch isLimited {
        case .success(true):
            // The period stays as it is (cgroup-v2.rst, "cpu.max").
            try write("max", to: "cpu.max")
            return .lifted
        case .success(false): return .none
        case .failure(let number) where number.value == ENOENT: return .none
        case .failure(let number): throw failure("read", "/cpu.max", number.value)
        }
    }

    private static func identifier(
        of directory: borrowing Descriptor, _ cgroup: Cgroup
    ) throws(KernelFailure) -> UInt64 {
        var status = stat()
        guard fstat(directory.rawValue, &status) == 0 else {
            throw KernelFailure(operation: "fstat", subject: cgroup.directory, errno: errno)
        }
        return UInt64(status.st_ino)
    }

    private static func stale(_ cgroup: Cgroup) -> KernelFailure {
        KernelFailure(operation: "hold", subject: cgroup.directory, errno: ESTALE)
    }

    private func write(_ text: String, to name: String) throws(KernelFailure) {
        let number = openat(directory.rawValue, name, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW)
        guard number >= 0 else { throw failure("open", "/\(name)", errno) }
        try Files.write(text, to: Descriptor(owning: number), named: "\(cgroup.directory)/\(name)")
    }

    private func failure(_ operation: String, _ name: String, _ number: Int32) -> KernelFailure {
        KernelFailure(operation: operation, subject: cgroup.directory + name, errno: number)
    }
}

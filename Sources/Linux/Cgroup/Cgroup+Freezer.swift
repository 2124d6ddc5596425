import Glibc

/// Documentation/admin-guide/cgroup-v2.rst of the kernel, "Core Interface Files".
extension Cgroup {
    /// What `cgroup.events` says.
    public struct Events: Equatable, Sendable {
        /// Whether it or a cgroup below holds a living process.
        public let isPopulated: Bool
        /// Whether it stands still, whoever has asked for it: the file of this cgroup or of one above it.
        /// What is below it may not yet: see `unfrozenDescendants()`.
        public let isFrozen: Bool
    }

    /// Reads `cgroup.events` once. The root of the hierarchy has none (`ENOENT`).
    public func events() throws(KernelFailure) -> Events {
        try readOnce("cgroup.events") { Events(parsing: $0.rest) }
    }

    /// Whether it stands still now, whoever has asked for it.
    public func isFrozen() throws(KernelFailure) -> Bool {
        try events().isFrozen
    }

    /// The cgroups below it that do not stand still yet. To be asked when it is frozen itself.
    ///
    /// Of a cgroup that has both processes of its own and cgroups below, the kernel says `frozen 1` once its
    /// own stand or once all below do, whichever is first (kernel/cgroup/freezer.c, `cgroup_update_frozen`,
    /// `cgroup_propagate_frozen`), and has no news when the rest does: watch the events of these then. Its
    /// own processes may be the late ones, a moment; no file tells that.
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

    /// Whether its own `cgroup.freeze` asks for it. The kernel gives no answer to who wrote it.
    public func wantsFrozen() throws(KernelFailure) -> Bool {
        try readOnce("cgroup.freeze") { $0.unsigned().map { $0 != 0 } }
    }

    /// Asks for everything in it and below to stand still. It does a moment later: read `events()` once now
    /// and wait with `CgroupEvents` then. Processes that come in later are frozen, too; SIGKILL still works.
    public func freeze() throws(KernelFailure) {
        try write("1", to: "cgroup.freeze")
    }

    /// Takes that back. While a cgroup above it is frozen, it stays frozen.
    public func thaw() throws(KernelFailure) {
        try write("0", to: "cgroup.freeze")
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
    /// Lines of a key and a number, in any order, with keys that we do not know; nil where one is missing.
    init?(parsing text: UnsafeRawBufferPointer) {
        var populated: UInt64?
        var frozen: UInt64?
        text.forEachLine { line in
            if line.take("populated ") {
                populated = line.unsigned()
            } else if line.take("frozen ") {
                frozen = line.unsigned()
            }
            return true
        }
        guard let populated, let frozen else { return nil }
        self.init(isPopulated: populated != 0, isFrozen: frozen != 0)
    }
}

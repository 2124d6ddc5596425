import Glibc

extension Cgroup {
    /// What came of a reclaim.
    public struct Reclaimed: Equatable, Sendable {
        /// Bytes that were asked for.
        public var asked: UInt64
        /// Whether the kernel found all of it; false: less (`EAGAIN`), or a signal came in between.
        public var isWhole: Bool
        /// `memory.current` before, in bytes.
        public var before: UInt64
        /// `memory.current` after. What goes on in the cgroup meanwhile counts, too.
        public var after: UInt64

        /// Bytes that came free.
        public var released: UInt64 { before > after ? before - after : 0 }
    }

    /// Has the kernel take memory from it and from all below: page cache, and with swap anonymous memory
    /// (`memory.reclaim`, since Linux 5.19; Documentation/admin-guide/cgroup-v2.rst).
    ///
    /// It may take long: not for the deciding thread. Throws `ENOENT` where the cgroup is gone, the kernel
    /// older, or there is no memory controller.
    public func reclaim(_ bytes: UInt64) throws(KernelFailure) -> Reclaimed {
        let path = "\(directory)/memory.reclaim"
        let number = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW)
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: errno) }
        let file = Descriptor(owning: number)
        let before = try memoryCurrent()
        var isWhole = true
        do throws(KernelFailure) {
            try Files.write("\(bytes)", to: file, named: path)
        } catch {
            guard error.errno == EAGAIN || error.errno == EINTR else { throw error }
            isWhole = false
        }
        return Reclaimed(asked: bytes, isWhole: isWhole, before: before, after: try memoryCurrent())
    }
}

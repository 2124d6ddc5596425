import Glibc

extension Cgroup {
    /// Has the kernel take memory from it and from all below: page cache, and with swap anonymous memory
    /// (`memory.reclaim`, since Linux 5.19; Documentation/admin-guide/cgroup-v2.rst).
    ///
    /// It may take long: not for the deciding thread. Throws `ENOENT` where the cgroup is gone, the kernel
    /// older, or there is no memory controller.
    ///
    /// - Returns: by how many bytes `memory.current` fell. What goes on in the cgroup meanwhile counts, too.
    public func reclaim(_ bytes: UInt64) throws(KernelFailure) -> UInt64 {
        let path = "\(directory)/memory.reclaim"
        let file = try Descriptor.open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW)
        let before = try memoryCurrent()
        do throws(KernelFailure) {
            try Files.write("\(bytes)", to: file, named: path)
        } catch {
            // The kernel has found less than that, or a signal came in between.
            guard error.errno == EAGAIN || error.errno == EINTR else { throw error }
        }
        let after = try memoryCurrent()
        return before > after ? before - after : 0
    }
}

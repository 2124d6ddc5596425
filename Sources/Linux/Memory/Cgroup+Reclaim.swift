import Glibc

extension Cgroup {
    /// Makes the kernel take memory from the cgroup and from all below it: page cache, and with swap anonymous memory
    /// (`memory.reclaim`, since Linux 5.19; Documentation/admin-guide/cgroup-v2.rst).
    ///
    /// This may take long, so the deciding thread must not call it. Throws `ENOENT` if the cgroup is gone,
    /// the kernel is older, or there is no memory controller.
    ///
    /// - Returns: by how many bytes `memory.current` fell. Other changes in the cgroup meanwhile count, too.
    public func reclaim(_ bytes: UInt64) throws(KernelFailure) -> UInt64 {
        let before = try memoryCurrent()
        try demand("\(bytes)")
        let after = try memoryCurrent()
        return before > after ? before - after : 0
    }

    /// The same for all of its page cache, and nothing else.
    public func reclaimFiles() throws(KernelFailure) -> UInt64 {
        let cached = try cachedFiles()
        if cached == 0 { return 0 }
        let before = try memoryCurrent()
        do throws(KernelFailure) {
            try demand("\(cached) swappiness=0")
        } catch {
            // Linux 6.8 and older do not accept a swappiness here.
            guard error.errno == EINVAL else { throw error }
            try demand("\(cached)")
        }
        let after = try memoryCurrent()
        return before > after ? before - after : 0
    }

    /// Bytes of files that the cgroup and all below it have in memory: `active_file` and `inactive_file` of
    /// `memory.stat`.
    private func cachedFiles() throws(KernelFailure) -> UInt64 {
        var sum: UInt64 = 0
        try Files.forEachLine(of: "\(directory)/memory.stat") { line in
            if line.take("active_file ") || line.take("inactive_file ") { sum &+= line.unsigned() ?? 0 }
            return true
        }
        return sum
    }

    private func demand(_ text: String) throws(KernelFailure) {
        let path = "\(directory)/memory.reclaim"
        let file = try Descriptor.open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW)
        do throws(KernelFailure) {
            try Files.write(text, to: file, named: path)
        } catch {
            // The kernel has found less than the requested amount, or a signal came in between.
            guard error.errno == EAGAIN || error.errno == EINTR else { throw error }
        }
    }
}

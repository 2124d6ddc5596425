import Glibc

extension Cgroup {
    /// Makes the kernel take page cache that no process has mapped from the cgroup and from all below it
    /// (`memory.reclaim`, since Linux 5.19; Documentation/admin-guide/cgroup-v2.rst).
    ///
    /// The kernel cannot be told to spare mapped pages. Then it ignores that processes in other cgroups use a page
    /// (mm/rmap.c, `folio_referenced`), and a page that many map belongs to the cgroup that read it first. Therefore
    /// nothing is taken if more than a quarter of the cache is mapped, and never more bytes than are not mapped.
    ///
    /// This may take long, so the deciding thread must not call it. Throws `ENOENT` if the cgroup is gone,
    /// the kernel is older, or there is no memory controller.
    ///
    /// - Returns: by how many bytes `memory.current` fell. Other changes in the cgroup meanwhile count, too.
    public func reclaimUnmappedFiles() throws(KernelFailure) -> UInt64 {
        let (cached, mapped) = try cachedFiles()
        if cached == 0 || mapped > cached / 4 { return 0 }
        let before = try memoryCurrent()
        do throws(KernelFailure) {
            try demand("\(cached - mapped) swappiness=0")
        } catch {
            // Linux 6.8 and older do not accept a swappiness here.
            guard error.errno == EINVAL else { throw error }
            try demand("\(cached - mapped)")
        }
        let after = try memoryCurrent()
        return before > after ? before - after : 0
    }

    /// Bytes of files that the cgroup and all below it have in memory, and how many of them some process has mapped:
    /// `active_file` and `inactive_file`, and `file_mapped`, of `memory.stat`. The latter includes shared memory.
    private func cachedFiles() throws(KernelFailure) -> (cached: UInt64, mapped: UInt64) {
        var (cached, mapped): (UInt64, UInt64) = (0, 0)
        try Files.forEachLine(of: "\(directory)/memory.stat") { line in
            if line.take("active_file ") || line.take("inactive_file ") {
                cached &+= line.unsigned() ?? 0
            } else if line.take("file_mapped ") {
                mapped = line.unsigned() ?? 0
            }
            return true
        }
        return (cached, mapped)
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

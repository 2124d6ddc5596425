import Glibc

extension Cgroup {
    /// `memory.current`: bytes that the cgroup and all below it occupy. Throws `ENOENT` without a memory controller.
    public func memoryCurrent() throws(KernelFailure) -> UInt64 {
        try readOnce("memory.current") { $0.unsigned() }
    }

    /// The bytes, in memory and in swap, that the end of all its processes would free: `anon` of
    /// `memory.stat` and `memory.swap.current` (Documentation/admin-guide/cgroup-v2.rst), of the cgroup and
    /// all below it. A page that several processes share after fork(2) counts once.
    ///
    /// Throws `ENOENT` without a memory controller. Without swap accounting, only memory counts.
    public func releasableMemory() throws(KernelFailure) -> UInt64 {
        // `anon` is the first of some seventy lines: what readOnce cuts off is not needed.
        let anonymous: UInt64 = try readOnce("memory.stat") { text in
            var found: UInt64?
            text.rest.forEachLine { line in
                guard line.take("anon ") else { return true }
                found = line.unsigned()
                return false
            }
            return found
        }
        let swapped = try? readOnce("memory.swap.current") { $0.unsigned() }
        return anonymous &+ (swapped ?? 0)
    }
}

import Glibc

extension Cgroup {
    /// `memory.current`: bytes that it and all below occupy. Throws `ENOENT` without a memory controller.
    public func memoryCurrent() throws(KernelFailure) -> UInt64 {
        try readOnce("memory.current") { $0.unsigned() }
    }

    /// What the death of all its processes would give back, in bytes, in memory and in swap: `anon` of `memory.stat`
    /// and `memory.swap.current` (Documentation/admin-guide/cgroup-v2.rst), of it and all below. A page that several
    /// processes share after fork(2) counts once.
    ///
    /// Throws `ENOENT` without a memory controller. Without swap accounting, memory alone counts.
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

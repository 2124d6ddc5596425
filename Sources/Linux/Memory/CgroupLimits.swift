/// How much memory a cgroup has left below its own limit and those of all cgroups above it.
/// In a container, the topmost may have a limit, too.
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class CgroupLimits {
    /// The limit that leaves least.
    public struct Figures: Equatable, Sendable {
        /// The values of the cgroup that has the limit.
        public var memory: CgroupMemory.Figures
        /// Whether that is the cgroup itself, and not one above it.
        public var isOwn: Bool
    }

    /// The cgroup itself, if it has a memory controller, and those above it.
    private let levels: [(memory: CgroupMemory, isOwn: Bool)]

    /// Opens the files. nil: neither the cgroup nor one above it has a memory controller, of version 2 or 1.
    public init?(_ cgroup: Cgroup) {
        var levels: [(memory: CgroupMemory, isOwn: Bool)] = []
        for level in [cgroup] + cgroup.ancestors {
            let memory =
                (try? CgroupMemory(level)) ?? (try? CgroupMemory(versionOneCounterpartOf: level))
            if let memory { levels.append((memory, level == cgroup)) }
        }
        if levels.isEmpty { return nil }
        self.levels = levels
    }

    /// The values now; nil if there is no limit below `total`, the machine's memory. Throws `ENODEV` once the cgroup is
    /// removed.
    public func read(below total: UInt64) throws(KernelFailure) -> Figures? {
        var least: Figures?
        // An iterator would allocate.
        for index in levels.indices {
            let level = levels[index]
            guard let memory = try level.memory.read(), memory.limit < total else { continue }
            if let known = least, known.memory.headroom <= memory.headroom { continue }
            least = Figures(memory: memory, isOwn: level.isOwn)
        }
        return least
    }
}

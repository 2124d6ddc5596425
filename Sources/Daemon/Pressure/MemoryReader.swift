import LifeCycle
import Linux

/// The machine's memory, and that of the active application.
final class MemoryReader {
    private let table: ApplicationTable
    private let info: MemoryInfo?
    private let counters: FileCacheCounters?
    private let lists: CPUPageLists?
    private var fronts: [ApplicationNumber: Front] = [:]

    struct Machine {
        let figures: MemoryInfo.Figures
        /// nil: they cannot be read.
        let counters: FileCacheCounters.Figures?
        /// Free pages on the per-CPU lists, in bytes.
        let perCPU: UInt64
    }

    /// An active application, if it has a cgroup of its own with a memory controller. The files are opened when an event
    /// needs them, and closed after it.
    private struct Front {
        let files: CgroupWorkingSet?
        let openedAt: Microseconds
    }

    /// The pause before another attempt: the application may have moved.
    private static let pause: Microseconds = 500_000

    init(proc: Proc, table: ApplicationTable) {
        self.table = table
        info = try? MemoryInfo(root: proc.root)
        counters = try? FileCacheCounters(root: proc.root)
        lists = try? CPUPageLists(root: proc.root)
    }

    /// What is left of the machine's memory, in bytes.
    var available: UInt64? { (try? info?.read())?.available }

    /// - Parameter withLists: whether some thousand lines are read for the per-CPU lists.
    func read(withLists: Bool) -> Machine? {
        guard let figures = try? info?.read() else { return nil }
        return Machine(
            figures: figures, counters: try? counters?.read(),
            perCPU: withLists ? (try? lists?.read()) ?? 0 : 0)
    }

    /// Whether the active application waits for its own pages (§ 6); nil: it has no such cgroup.
    func front(_ number: ApplicationNumber, at now: Microseconds) -> FrontMemory? {
        var front = fronts[number]
        if front.map({ $0.files == nil && now - $0.openedAt >= Self.pause }) ?? true {
            let cgroup = table[number].flatMap { table.ownCgroup(of: $0) }
            front = Front(files: cgroup.flatMap { try? CgroupWorkingSet($0) }, openedAt: now)
            fronts[number] = front
        }
        guard let files = front?.files else { return nil }
        guard let figures = try? files.read() else {
            fronts[number] = Front(files: nil, openedAt: now)
            return nil
        }
        return FrontMemory(
            number, cached: figures.cached, refaulted: figures.refaulted, waited: figures.waited)
    }

    /// An event is over.
    func forgetFronts() { fronts = [:] }
}

extension FileCache {
    init(_ figures: FileCacheCounters.Figures) {
        self.init(
            cached: figures.cached, evicted: figures.evicted, reclaimed: figures.reclaimed,
            refaulted: figures.refaulted)
    }
}

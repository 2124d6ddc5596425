import LifeCycle
import Linux

/// The machine's memory. Each file is read at most once in a wake-up of the loop, no matter how many sources need it.
final class MachineMemory {
    private let wokeAt: () -> Microseconds
    private let info: MemoryInfo?
    private let counters: FileCacheCounters?
    private let lists: CPUPageLists?
    private var lastInfo: Reading<MemoryInfo.Figures>?
    private var lastCounters: Reading<FileCacheCounters.Figures>?
    private var lastLists: Reading<UInt64>?

    private struct Reading<Figures> {
        let figures: Figures?
        let wokeAt: Microseconds
    }

    /// - Parameter wokeAt: when the loop woke up.
    init(proc: Proc, wokeAt: @escaping () -> Microseconds) {
        self.wokeAt = wokeAt
        info = try? MemoryInfo(root: proc.root)
        counters = try? FileCacheCounters(root: proc.root)
        lists = try? CPUPageLists(root: proc.root)
    }

    /// How much there is, and how much is left; nil: it cannot be read.
    var figures: MemoryInfo.Figures? { once(&lastInfo) { try? info?.read() } }

    /// How many file pages were evicted and read back; nil: it cannot be read.
    var files: FileCacheCounters.Figures? { once(&lastCounters) { try? counters?.read() } }

    /// Free pages on the per-CPU lists, in bytes. Some thousand lines are read for this.
    var perCPU: UInt64 { once(&lastLists) { try? lists?.read() } ?? 0 }

    private func once<Figures>(_ last: inout Reading<Figures>?, _ read: () -> Figures?) -> Figures? {
        let wokeAt = wokeAt()
        if let last, last.wokeAt == wokeAt { return last.figures }
        let figures = read()
        last = Reading(figures: figures, wokeAt: wokeAt)
        return figures
    }
}

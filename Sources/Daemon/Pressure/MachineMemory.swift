import LifeCycle
import Linux

/// The machine's memory. Each file is read at most once in a turn of the loop, no matter how many sources need it.
final class MachineMemory {
    private let turn: () -> Microseconds
    private let info: MemoryInfo?
    private let counters: FileCacheCounters?
    private let lists: CPUPageLists?
    private var lastInfo: Reading<MemoryInfo.Figures>?
    private var lastCounters: Reading<FileCacheCounters.Figures>?
    private var lastLists: Reading<UInt64>?

    private struct Reading<Figures> {
        let figures: Figures?
        let turn: Microseconds
    }

    /// - Parameter turn: when the present turn of the loop began.
    init(proc: Proc, turn: @escaping () -> Microseconds) {
        self.turn = turn
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
        let turn = turn()
        if let last, last.turn == turn { return last.figures }
        let figures = read()
        last = Reading(figures: figures, turn: turn)
        return figures
    }
}

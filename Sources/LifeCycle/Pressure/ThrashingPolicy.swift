/// Whether the active application is losing pages that it uses (§ 6): one pure function.
///
/// The kernel counts every page of a file as available. It evicts these pages even if they are in use:
/// processes that need memory must search for them, and processes that used them must read them back. This is
/// called *thrashing*:
///
/// | | `CriticalAvailable` | pages of files taken | read back | who waits |
/// | --- | --- | --- | --- | --- |
/// | pages in use are read back | less than 4 times is left | much | much | |
/// | pages in use are searched for others | less than twice is left | much | 1 MiB a second | any process, 7 % of the time: the kernel's own search counts (`kswapd`) |
///
/// In both cases the active application must also wait 1 % of the time, if this is known. Above twice the critical
/// amount no application is ended for it (`PressureGauge.wantsRelief`).
///
/// *Much* is `ThrashingLimit` of the file cache within a second. Android's lmkd compares the same two
/// (`thrashing_limit`). If the active application has a cgroup with a memory controller, its own refaults are
/// compared with its own file cache. Pages that a cgroup loses because of its own limit do not count as taken.
///
/// Copying a large file evicts pages and reads none back. Reading lost pages back when memory is free
/// again evicts none. A program that uses more than the machine has thrashes even with much memory left, and
/// ending another application does not help it.
enum ThrashingPolicy {
    /// Multiples of `CriticalAvailable`.
    static let roomToReadBack: UInt64 = 4
    static let roomToSearch: UInt64 = 2
    /// The share of the time that the active application waits.
    static let frontWaiting = 0.01
    /// As in the default of the trigger `Warning`, which is lmkd's.
    static let waitingToSearch = 0.07
    /// Less than this never counts, no matter how small the cache is: bytes a second.
    static let leastChurn = 1_048_576.0

    /// - Parameters:
    ///   - critical: bytes of `CriticalAvailable`.
    ///   - limit: hundredths of a per cent of the file cache, a second; nil: nothing counts as thrashing.
    static func isThrashing(
        _ churn: FileChurn, _ sample: MemorySample, critical: UInt64, limit: UInt32?
    ) -> Bool {
        guard let limit, let files = sample.files else { return false }
        func isMuch(_ pace: Double, of cached: UInt64) -> Bool {
            pace >= max(Double(cached) * Double(limit) / 10_000, leastChurn)
        }
        guard isMuch(churn.evicting, of: files.cached) else { return false }
        // The thrashing concerns another program.
        if let front = churn.front, front.waiting < frontWaiting { return false }
        var (refaulting, cached) = (churn.refaulting, files.cached)
        if let front = churn.front, let own = sample.front {
            (refaulting, cached) = (front.refaulting, own.cached)
        }
        if isLess(sample, than: roomToSearch, critical), churn.waiting >= waitingToSearch,
            refaulting >= leastChurn
        {
            return true
        }
        return isLess(sample, than: roomToReadBack, critical) && isMuch(refaulting, of: cached)
    }

    /// Whether so little is left that pages in use may be taken.
    static func isShort(_ sample: MemorySample, _ critical: UInt64) -> Bool {
        isLess(sample, than: roomToReadBack, critical)
    }

    /// Whether so little is left that the pages that are evicted must be watched: they may be in use.
    static func leavesNoRoom(_ sample: MemorySample, _ critical: UInt64) -> Bool {
        isLess(sample, than: roomToSearch, critical)
    }

    private static func isLess(_ sample: MemorySample, than times: UInt64, _ critical: UInt64) -> Bool {
        let (room, overflow) = critical.multipliedReportingOverflow(by: times)
        return overflow || sample.available < room
    }
}

/// How fast file pages leave memory and are read back, and how much processes wait meanwhile. These are averages over
/// seconds: half of the past is forgotten in 500 ms.
struct FileChurn: Equatable, Sendable {
    /// Bytes a second, for lack of the machine's memory.
    private(set) var evicting = 0.0
    /// Bytes a second.
    private(set) var refaulting = 0.0
    /// The share of the time in which some process waits for memory, 0 to 1.
    private(set) var waiting = 0.0
    /// The same for the active application alone, if it is known.
    private(set) var front: Front?

    /// The figures about the active application's own pages, if known.
    struct Front: Equatable, Sendable {
        var refaulting = 0.0
        var waiting = 0.0
    }

    /// Adds the changes between two samples, `span` seconds apart.
    mutating func add(_ before: MemorySample, _ after: MemorySample, span: Double) {
        guard span > 0, let old = before.files, let new = after.files else { return }
        let share = span / (span + 0.5)
        func pace(_ from: UInt64, _ to: UInt64) -> Double { to > from ? Double(to - from) / span : 0 }
        // A user can have as many pages evicted as they like, in a cgroup with a limit of their own.
        let evicted = min(pace(old.evicted, new.evicted), pace(old.reclaimed, new.reclaimed))
        evicting += (evicted - evicting) * share
        refaulting += (pace(old.refaulted, new.refaulted) - refaulting) * share
        waiting += (pace(before.waited, after.waited) / 1_000_000 - waiting) * share
        guard let now = after.front else {
            front = nil
            return
        }
        // Another application is active now: its counts begin with this sample.
        guard let then = before.front, then.number == now.number else {
            front = Front()
            return
        }
        var own = front ?? Front()
        own.refaulting += (pace(then.refaulted, now.refaulted) - own.refaulting) * share
        own.waiting += (pace(then.waited, now.waited) / 1_000_000 - own.waiting) * share
        front = own
    }
}

extension MemorySample {
    /// Whether the kernel has evicted a noticeable number of file pages meanwhile, for lack of memory.
    func hasEvicted(since before: MemorySample) -> Bool {
        guard let old = before.files, let new = files else { return false }
        let least = UInt64(ThrashingPolicy.leastChurn)
        return new.evicted >= old.evicted &+ least && new.reclaimed >= old.reclaimed &+ least
    }
}

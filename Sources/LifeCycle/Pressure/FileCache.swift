/// Pages of files in memory, as the kernel counts them for the machine; all in bytes.
public struct FileCache: Equatable, Sendable {
    /// The pages in memory now: `Active(file)` and `Inactive(file)`.
    public var cached: UInt64
    /// Evicted since the machine started, no matter why.
    public var evicted: UInt64
    /// Pages of every kind that were reclaimed since then because the machine's memory was short. Those that a cgroup
    /// lost because of its own limit are not included.
    public var reclaimed: UInt64
    /// Read again since then, after having been evicted.
    public var refaulted: UInt64

    public init(cached: UInt64, evicted: UInt64, reclaimed: UInt64, refaulted: UInt64) {
        self.cached = cached
        self.evicted = evicted
        self.reclaimed = reclaimed
        self.refaulted = refaulted
    }
}

/// The active application, if it has a cgroup of its own with a memory controller.
public struct FrontMemory: Equatable, Sendable {
    public var number: ApplicationNumber
    /// Its own file pages: `refaulted` and `cached` of its cgroup.
    public var cached: UInt64
    public var refaulted: UInt64
    /// Microseconds in which some of its tasks waited for memory, since its cgroup was created.
    public var waited: UInt64

    public init(_ number: ApplicationNumber, cached: UInt64, refaulted: UInt64, waited: UInt64) {
        self.number = number
        self.cached = cached
        self.refaulted = refaulted
        self.waited = waited
    }
}

/// How fast file pages leave memory and are read back, and how much processes wait meanwhile. These are averages over
/// seconds: half of the past is forgotten in 500 ms.
public struct FileChurn: Equatable, Sendable {
    /// Bytes a second, for lack of the machine's memory.
    public private(set) var evicting = 0.0
    /// Bytes a second.
    public private(set) var refaulting = 0.0
    /// The share of the time in which some process waits for memory, 0 to 1.
    public private(set) var waiting = 0.0
    /// The same for the active application alone, if it is known.
    public private(set) var front: Front?

    /// The figures about the active application's own pages, if known.
    public struct Front: Equatable, Sendable {
        public var refaulting = 0.0
        public var waiting = 0.0

        public init(refaulting: Double = 0, waiting: Double = 0) {
            self.refaulting = refaulting
            self.waiting = waiting
        }
    }

    public init(evicting: Double = 0, refaulting: Double = 0, waiting: Double = 0, front: Front? = nil) {
        self.evicting = evicting
        self.refaulting = refaulting
        self.waiting = waiting
        self.front = front
    }

    /// Adds the changes between two samples, `span` seconds apart.
    mutating func take(_ before: MemorySample, _ after: MemorySample, span: Double) {
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

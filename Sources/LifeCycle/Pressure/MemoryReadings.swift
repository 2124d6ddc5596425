public import AppStateContract

/// A PSI file that is watched, and the memory to which it refers.
public struct PressureSource: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The PSI file.
    public let path: String
    /// Only this user's applications are concerned; nil: all.
    public let user: UInt32?
    /// It refers to a cgroup that is neither the machine nor the whole slice of a user: only applications
    /// that were found in it are ended.
    public let isPart: Bool

    public init(path: String, user: UInt32? = nil, isPart: Bool = false) {
        self.path = path
        self.user = user
        self.isPart = isPart
    }

    public var description: String { path }

    /// Whether it refers to the machine, not to a cgroup.
    var isMachine: Bool { user == nil && !isPart }

    /// The machine comes first.
    public static func < (left: Self, right: Self) -> Bool {
        left.isMachine == right.isMachine ? left.path < right.path : left.isMachine
    }
}

/// Everything that is read of memory at once.
public struct MemoryReadings: Equatable, Sendable {
    /// One for each source that is watched.
    public var sources: [PressureSource: Reading]
    /// nil: they were not measured (`Machine.needsSizes`).
    public var sizes: Sizes?

    public struct Reading: Equatable, Sendable {
        /// nil: it could not be read.
        public var sample: MemorySample?
        /// The trigger of the source that has just fired; nil: none has.
        public var trigger: MemoryPressure?

        public init(_ sample: MemorySample?, trigger: MemoryPressure? = nil) {
            self.sample = sample
            self.trigger = trigger
        }
    }

    public struct Sizes: Equatable, Sendable {
        /// The memory that the end of each application would free.
        public var bytes: [ApplicationNumber: UInt64]
        /// The applications in the cgroup of each source that covers a part of the machine.
        public var members: [PressureSource: Set<ApplicationNumber>]

        public init(
            _ bytes: [ApplicationNumber: UInt64], members: [PressureSource: Set<ApplicationNumber>] = [:]
        ) {
            self.bytes = bytes
            self.members = members
        }
    }

    public init(_ sources: [PressureSource: Reading], _ sizes: Sizes? = nil) {
        self.sources = sources
        self.sizes = sizes
    }
}

/// How much memory there is, in bytes.
public struct MemorySample: Equatable, Sendable {
    /// What is available without swapping: MemAvailable, or a cgroup's headroom.
    public var available: UInt64
    public var total: UInt64
    public var swapTotal: UInt64
    public var swapFree: UInt64
    /// Free pages on the per-CPU lists. MemAvailable does not include them, and memory that an end has just
    /// freed stays there for a while.
    public var perCPU: UInt64
    /// Whether it is the headroom of a cgroup below its own limit, not the machine's.
    public var isLimited: Bool
    /// Microseconds in which some process waited for memory, according to the source's PSI file, since the
    /// file began to count.
    public var waited: UInt64
    /// Grows whenever a process had to free memory itself before it got any (direct reclaim); nil: not known, or not
    /// needed, because the source's PSI file counts no kernel threads.
    public var searches: UInt64?
    /// The machine's file pages; nil: not known, or the sample is of a cgroup below its own limit.
    public var files: FileCache?
    /// The memory of the active application, if it has a cgroup of its own with a memory controller.
    public var front: FrontMemory?

    /// - Parameter swapFree: nil: all swap.
    public init(
        available: UInt64, total: UInt64, swapTotal: UInt64, swapFree: UInt64? = nil, perCPU: UInt64 = 0,
        isLimited: Bool = false, waited: UInt64 = 0, searches: UInt64? = nil, files: FileCache? = nil,
        front: FrontMemory? = nil
    ) {
        self.waited = waited
        self.searches = searches
        self.files = files
        self.front = front
        self.available = available
        self.total = total
        self.swapTotal = swapTotal
        self.swapFree = swapFree ?? swapTotal
        self.perCPU = perCPU
        self.isLimited = isLimited
    }

    /// What is available besides the pages of files, in bytes. It may be negative: MemAvailable does not count what the
    /// kernel reserves. It falls and rises as free memory does.
    var room: Int? { files.map { Int(clamping: available) - Int(clamping: $0.cached) } }

    /// systemd-oomd's SwapUsedLimit= (oomd.conf(5)): nine tenths.
    var isSwapUsedUp: Bool { swapTotal > 0 && swapFree < swapTotal / 10 }
}

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

/// An application's share of the machine's resources. If a field is nil, the application keeps its own value.
public struct ResourceRow: Equatable, Sendable {
    /// The weight of its own cgroup for processor time, relative to its siblings: `CgroupShares.range`.
    public var cpuWeight: Int32?
    /// The weight of its own cgroup for disk bandwidth.
    public var ioWeight: Int32?
    /// The most processor time, in percent of one processor; a cgroup that has a limit of its own keeps that.
    public var cpuQuota: Int32?
    /// How much memory of its own cgroup is protected, in hundredths of a per cent of the machine's memory; a
    /// cgroup that already has more protection keeps that.
    public var memoryLow: UInt32?
    /// Added to each process's own `oom_score_adj`, and kept within `OOMScoreAdjustment.range`.
    public var oomScoreAdjust: Int32?
    /// Added to each thread's own nice value, and kept within `Niceness.range`.
    public var nice: Int32?
    /// The I/O class of each thread that does not have a more special one of its own (realtime, idle).
    public var ioClass: IOPriority.Class?

    /// A row; without arguments, one that leaves everything as the application has it.
    public init(
        cpuWeight: Int32? = nil, ioWeight: Int32? = nil, cpuQuota: Int32? = nil, memoryLow: UInt32? = nil,
        oomScoreAdjust: Int32? = nil, nice: Int32? = nil, ioClass: IOPriority.Class? = nil
    ) {
        self.memoryLow = memoryLow
        self.cpuWeight = cpuWeight
        self.ioWeight = ioWeight
        self.cpuQuota = cpuQuota
        self.oomScoreAdjust = oomScoreAdjust
        self.nice = nice
        self.ioClass = ioClass
    }

    /// Takes over another row's values for the time of processors and disks.
    public mutating func takeTime(from other: ResourceRow) {
        cpuWeight = other.cpuWeight
        ioWeight = other.ioWeight
        nice = other.nice
        ioClass = other.ioClass
    }

    /// Whether it sets this value. Adding 0 does not count.
    func says(_ knob: ResourceKnob) -> Bool {
        switch knob {
        case .nice: nice ?? 0 != 0
        case .io: ioClass != nil
        case .oom: oomScoreAdjust ?? 0 != 0
        case .cpuWeight: cpuWeight != nil
        case .ioWeight: ioWeight != nil
        case .cpuQuota: cpuQuota != nil
        case .memoryLow: memoryLow != nil
        }
    }

    /// The value for a target whose own value is `original`.
    func value(_ knob: ResourceKnob, from original: Int32) -> Int32 {
        switch knob {
        case .nice: Self.sum(original, nice, within: Niceness.range)
        case .oom: Self.sum(original, oomScoreAdjust, within: OOMScoreAdjustment.range)
        case .io: ioPriority(from: IOPriority(rawValue: original)).rawValue
        case .cpuWeight: cpuWeight ?? original
        case .ioWeight: ioWeight ?? original
        case .memoryLow: max(original, memoryLow.map(CgroupShares.pages) ?? original)
        case .cpuQuota:
            original == CgroupShares.unlimited ? cpuQuota.map { $0 * 1_000 } ?? original : original
        }
    }

    private func ioPriority(from own: IOPriority) -> IOPriority {
        switch (ioClass, own.ioClass) {
        case (.idle?, .none?), (.idle?, .bestEffort?): IOPriority(.idle)
        // The level that the kernel itself gives at nice 0 (IOPRIO_BE_NORM).
        case (.bestEffort?, .none?): IOPriority(.bestEffort, level: 4)
        case (_, _): own
        }
    }

    private static func sum(_ own: Int32, _ added: Int32?, within range: ClosedRange<Int32>) -> Int32 {
        let (sum, overflow) = own.addingReportingOverflow(added ?? 0)
        if overflow { return own }
        return min(max(sum, range.lowerBound), range.upperBound)
    }
}

/// The resources that can be set.
public enum ResourceKnob: String, Hashable, Sendable, CaseIterable {
    /// `Niceness`, of each thread.
    case nice
    /// `IOPriority`, of each thread.
    case io
    /// `OOMScoreAdjustment`, of each process.
    case oom
    /// `CgroupShares`, of the application's own cgroup.
    case cpuWeight = "cpu-weight"
    case ioWeight = "io-weight"
    /// Microseconds in each 100 ms, or `CgroupShares.unlimited`.
    case cpuQuota = "cpu-max"
    /// Pages.
    case memoryLow = "memory-low"

    /// The knobs of processes and threads.
    static let ofProcesses: [ResourceKnob] = [.nice, .io, .oom]
    static let ofCgroups: [ResourceKnob] = [.cpuWeight, .ioWeight, .cpuQuota, .memoryLow]

    /// Whether each thread has a value of its own.
    var isOfThreads: Bool { self == .nice || self == .io }
}

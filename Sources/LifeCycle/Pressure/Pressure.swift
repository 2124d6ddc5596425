import AppStateContract

/// Memory pressure over all sources, and the application that is being ended for it.
struct Pressure: Equatable, Sendable {
    /// An application that is being ended; the next one must wait until it is gone.
    struct Victim: Equatable, Sendable {
        let number: ApplicationNumber
        /// The sources for whose `KillsPerEvent` its end counts; none if an earlier daemon has decided its end.
        let counting: [PressureSource]
        /// If it is not gone by then, the next application is considered.
        let deadline: Microseconds
        /// The memory of its processes is released from the kill on, which may take longer than the end of the main
        /// process.
        var awaitsRelease = false
        /// Its main process is gone.
        var isGone = false
    }

    var gauges: [PressureSource: PressureGauge] = [:]
    var level = MemoryPressure.normal
    var levelChangedAt: Microseconds?
    /// The memory that the end of each application would free, as last measured.
    var sizes: [ApplicationNumber: UInt64] = [:]
    var victim: Victim?
    /// The applications in the cgroup of each source that covers a part of the machine, as last measured.
    var members: [PressureSource: Set<ApplicationNumber>] = [:]
    /// No candidates for the rest of the event: they were spared, or killed without success.
    var excluded: Set<ApplicationNumber> = []
    /// Applications whose memory was paged out, and the time since which they were suspended then.
    var pagedOut: [ApplicationNumber: Microseconds] = [:]
    /// Applications whose memory is being paged out.
    var beingPagedOut: Set<ApplicationNumber> = []
    /// The bytes freed by the finished page-outs of the present batch.
    var freedByPageOut: UInt64 = 0
    /// Until then, no application is ended for thrashing as long as page-outs are in progress.
    var pageOutsWaitedUntil: Microseconds?
    /// The number of applications that were ended for each source: ends for one user's slice do not count for
    /// the other sources.
    var kills: [PressureSource: Int] = [:]
    /// `Mode=observe`: the memory that the announced ends would have freed.
    var expectedFree: [ApplicationNumber: UInt64] = [:]
    /// Sources, of more than one user, for which no suspended application is left.
    var exhausted: Set<PressureSource> = []
    /// When sizes were measured last in this event. Without them no application is chosen.
    var measuredAt: Microseconds?

    /// While an event is critical, sizes are measured this often,
    static let measureEvery: Microseconds = 5_000_000
    /// and otherwise this often. An event may stay open for days.
    static let measureSeldom: Microseconds = 60_000_000
    /// Smaller applications are not worth a page-out: Android compacts above 12 MB resident.
    static let leastPageOut: UInt64 = 12 << 20

    /// The smallest result whose effect is worth waiting for. Less is used up in a moment.
    static let noticeablePageOut: UInt64 = 4 << 20
    /// Page-outs are awaited no longer than this.
    static let pageOutWait: Microseconds = 500_000

    /// The most page-outs at a time: what is queued is paged out even if the pressure has ended.
    static let mostPageOuts = 4

    /// Whether an application was ended in this event for the memory of a source. Memory that is freed below
    /// a cgroup's own limit does not count for other sources.
    func hasEnded(for source: PressureSource) -> Bool {
        kills.contains { kill in
            kill.value > 0 && (kill.key == source || gauges[kill.key]?.sample?.isLimited == false)
        }
    }

    /// Whether memory may still become free without ending an application.
    func awaitsPageOuts(_ now: Microseconds) -> Bool {
        !beingPagedOut.isEmpty && pageOutsWaitedUntil.map { now < $0 } ?? false
    }

    var isEventOpen: Bool { gauges.values.contains(where: \.isEpisodeOpen) }

    /// When sizes must be measured again; 0: at once; nil: no event is open.
    var measureAt: Microseconds? {
        guard isEventOpen else { return nil }
        guard let measuredAt else { return 0 }
        return measuredAt + (highest == .critical ? Self.measureEvery : Self.measureSeldom)
    }

    var nextDeadline: Microseconds? { [victim?.deadline, levelDue].compactMap(\.self).min() }

    /// The highest level of all sources.
    var highest: MemoryPressure { gauges.values.map(\.level).max() ?? .normal }

    /// When the level may change to the highest of all sources; nil: it is at that level, or may change at once.
    var levelDue: Microseconds? {
        let highest = highest
        guard highest != level, highest != .critical, let levelChangedAt else { return nil }
        return levelChangedAt + PressureGauge.leastDwell
    }

    /// Memory is no longer short: forgets the data about the event.
    mutating func close() {
        excluded = []
        kills = [:]
        expectedFree = [:]
        exhausted = []
        members = [:]
        measuredAt = nil
        sizes = [:]
    }
}

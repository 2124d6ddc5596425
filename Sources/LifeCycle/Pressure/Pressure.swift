import AppStateContract

/// Memory pressure over all sources, and who is being ended for it.
struct Pressure: Equatable, Sendable {
    /// An application that is being ended; the next has to wait until it is gone.
    struct Victim: Equatable, Sendable {
        let number: ApplicationNumber
        /// Whose shortage it is ended for.
        let source: PressureSource
        /// Not gone by then, the next is looked at.
        let deadline: Microseconds
    }

    var gauges: [PressureSource: PressureGauge] = [:]
    var level = MemoryPressure.normal
    var levelChangedAt: Microseconds?
    /// What the end of each application would bring, as it was measured last.
    var sizes: [ApplicationNumber: UInt64] = [:]
    var victim: Victim?
    /// What was found in the cgroup of each source that is a part of the machine, when it was measured last.
    var members: [PressureSource: Set<ApplicationNumber>] = [:]
    /// No candidates for the rest of the event: spared, or killed in vain.
    var excluded: Set<ApplicationNumber> = []
    /// Whose memory was pushed out, and since when it was suspended then.
    var pagedOut: [ApplicationNumber: Microseconds] = [:]
    /// Whose memory is being pushed out.
    var beingPagedOut: Set<ApplicationNumber> = []
    /// Bytes that those have brought which are over, since none was under way.
    var broughtByPageOut: UInt64 = 0
    /// Nobody is ended for pages in use before, as long as some are under way.
    var pageOutsWaitedUntil: Microseconds?
    /// How many each source has cost: what one user's slice does is not counted for the others.
    var kills: [PressureSource: Int] = [:]
    /// `Mode=observe`: what those said to be ended would have brought.
    var promised: [ApplicationNumber: UInt64] = [:]
    /// Sources, of more than one user, that have nobody suspended left.
    var exhausted: Set<PressureSource> = []
    /// When sizes are wanted again.
    var measureAt: Microseconds?
    /// Since when the first sizes of the event are being looked at: nobody is chosen without.
    var measuringSince: Microseconds?

    /// While an event lasts, sizes are looked at this often.
    static let measureEvery: Microseconds = 5_000_000
    /// The sizes are not waited for longer.
    static let measureWait: Microseconds = 100_000
    /// Smaller ones are not worth the page-out: Android compacts above 12 MB resident.
    static let leastPageOut: UInt64 = 12 << 20

    /// What is worth to see what comes of it: less is used up in a moment.
    static let noticeablePageOut: UInt64 = 4 << 20
    /// Page-outs are not waited for longer.
    static let pageOutWait: Microseconds = 500_000

    /// Page-outs under way: ends and measurements wait behind them.
    static let mostPageOuts = 4

    /// Whether somebody was ended in this event for the memory that a source is about. What a cgroup gives back below
    /// its own limit is counted to nobody else.
    func hasEnded(for source: PressureSource) -> Bool {
        kills.contains { kill in
            kill.value > 0 && (kill.key == source || gauges[kill.key]?.sample?.isLimited == false)
        }
    }

    /// Whether something may still be had that nobody has to be ended for.
    func awaitsPageOuts(_ now: Microseconds) -> Bool {
        !beingPagedOut.isEmpty && pageOutsWaitedUntil.map { now < $0 } ?? false
    }

    var isEventOpen: Bool { gauges.values.contains(where: \.isEpisodeOpen) }

    var nextDeadline: Microseconds? {
        let others = [victim?.deadline, isEventOpen ? measureAt : nil, levelDue]
        return (gauges.values.map(\.nextSample) + others).lazy.compactMap(\.self).min()
    }

    /// The highest level of all sources.
    var highest: MemoryPressure { gauges.values.map(\.level).max() ?? .normal }

    /// When the level may change to the highest of all sources; nil: it is that, or may at once.
    var levelDue: Microseconds? {
        let highest = highest
        guard highest != level, highest != .critical, let levelChangedAt else { return nil }
        return levelChangedAt + PressureGauge.rest
    }

    /// All is well again: what was remembered of the event is forgotten.
    mutating func close() {
        excluded = []
        kills = [:]
        promised = [:]
        exhausted = []
        members = [:]
        measureAt = nil
        measuringSince = nil
        sizes = [:]
    }
}

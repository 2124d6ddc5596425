import AppStateContract

/// The level of one source.
///
/// A PSI trigger opens an *episode*. Only while an episode is open is memory read again and again, more often as it
/// falls. PSI alone is too late: after the first trigger a growing application uses up the page cache without stalls,
/// and everything stalls at once when the cache is gone (§ 6). If there is little page cache, nothing stalls before all
/// of it is gone. An episode therefore also opens when a reading finds little memory left. It ends when neither has
/// indicated a shortage for a while.
///
/// The level rises to `critical` at once. Every other change comes at least `leastDwell` after the previous one, and the
/// level falls only after `leastDwell` without a reason to stay, so that it does not flap.
struct PressureGauge: Equatable, Sendable {
    /// The level in force.
    private(set) var level = MemoryPressure.normal
    /// When memory must be read again; nil: no episode is open.
    private(set) var nextReading: Microseconds?
    /// How many bytes may be allocated before memory must be read again; nil: an episode is open.
    private(set) var alarm: UInt64?
    fileprivate var episode: Episode?
    private var changedAt: Microseconds?
    /// The last reading, while no episode is open.
    private var last: Quiet?

    private struct Quiet: Equatable, Sendable {
        var sample: MemorySample
        var time: Microseconds
        var churn: FileChurn
        var evictionBegins: Int?
    }

    /// The least time between two changes of the level, and the least time of calm before it falls.
    static let leastDwell: Microseconds = 2_000_000
    /// Memory has recovered at twice the critical amount, and is no longer critical at a quarter more than that amount.
    private static let recovered = 8
    private static let relieved = 5
    /// Memory has not recovered if, at its present rate of decrease, it would be critical this soon.
    private static let foresight = 10.0
    /// Seconds. An end takes about this long, from the decision until the memory is free.
    fileprivate static let endDuration = 0.25
    /// Seconds. Before the first end in an event it is unknown how long an end takes on this machine, which
    /// may be slow.
    private static let firstHaste = 3.0
    /// After that, an end is known to take some tenths of a second, and to free the measured amount.
    private static let haste = 0.75
    private static let longestPause: Microseconds = 100_000
    private static let shortestPause: Microseconds = 5_000
    /// Less than the critical amount is left, and it would not last for `foresight`.
    private static let pauseInNeed: Microseconds = 20_000
    /// Nothing has happened for several times `leastDwell`.
    private static let calmPause: Microseconds = 250_000
    /// Bytes a second. After memory has stopped falling, the average takes a while to become zero.
    fileprivate static let noticeableFall = 1024.0

    /// Bytes above the critical amount.
    private static let leastMargin: UInt64 = 16 << 20

    fileprivate struct Episode: Equatable, Sendable {
        var triggeredAt: Microseconds
        var stalledAt: Microseconds?
        /// A critical trigger that has not been answered yet.
        var owesRelief = false
        /// A trigger that has not been answered yet.
        var owesAnswer = false
        /// When a process was last seen to have freed memory itself.
        var searchedAt: Microseconds?
        var sample: MemorySample?
        /// Memory was freed since the sample, or could not be read again: the sample no longer shows what is needed.
        var isOutOfDate = false
        var sampledAt: Microseconds = 0
        /// Bytes a second; negative: available memory rises.
        var fall = 0.0
        /// It has fallen since the sample before the last.
        var isFallingNow = false
        /// How fast file pages are evicted and read back.
        var churn = FileChurn()
        /// Pages in use were lost since the level is critical.
        var hasThrashed = false
        /// The room (`MemorySample.room`) at which the kernel last began to evict file pages.
        var evictionBegins: Int?
        /// Since when the level has had no reason to be as high as it is,
        var lowSince: Microseconds?
        /// and the highest level that there was a reason for since then.
        var lowLevel = MemoryPressure.normal
    }

    var isEpisodeOpen: Bool { episode != nil }

    /// The last sample of the open episode.
    var sample: MemorySample? { episode?.sample }

    /// A trigger has fired. The reading that comes with it follows.
    mutating func triggered(_ trigger: MemoryPressure, at now: Microseconds) {
        var open = episode ?? Episode(triggeredAt: now)
        // An episode continues what the last reading has just shown.
        if let last, now - last.time < Self.leastDwell {
            (open.churn, open.evictionBegins) = (last.churn, last.evictionBegins)
        }
        open.triggeredAt = now
        open.owesAnswer = true
        if trigger == .critical {
            open.stalledAt = now
            open.owesRelief = true
        }
        begin(open)
        nextReading = now
    }

    private mutating func begin(_ open: Episode) {
        episode = open
        last = nil
        alarm = nil
    }

    /// Processes a reading: decides the level, and when memory is read next.
    ///
    /// - Parameter sample: nil: memory could not be read.
    mutating func update(_ sample: MemorySample?, at now: Microseconds, _ settings: PressureSettings) {
        guard let sample else {
            episode?.isOutOfDate = true
            if episode == nil { alarm = Self.leastMargin } else { nextReading = now + Self.longestPause }
            return
        }
        if episode == nil { watch(sample, at: now, settings) }
        guard let open = episode else { return }
        follow(open, sample, at: now, settings)
        if episode == nil { watch(sample, at: now, settings) }
    }

    /// No episode is open: opens one, or sets the alarm.
    private mutating func watch(_ sample: MemorySample, at now: Microseconds, _ settings: PressureSettings) {
        let critical = settings.criticalAvailable.bytes(of: sample.total)
        var open = Episode(triggeredAt: now)
        var mayThrash = false
        var hasEvicted = false
        if let last {
            (open.churn, open.evictionBegins) = (last.churn, last.evictionBegins)
            open.addChurn(last.sample, sample, span: Double(now - last.time) / 1_000_000)
            hasEvicted = sample.hasEvicted(since: last.sample)
            mayThrash =
                settings.thrashingLimit != nil && ThrashingPolicy.leavesNoRoom(sample, critical)
                && hasEvicted
        }
        if sample.available < Self.near(critical, of: sample.total) || mayThrash
            || open.isThrashing(sample, settings)
        {
            return begin(open)
        }
        last = Quiet(sample: sample, time: now, churn: open.churn, evictionBegins: open.evictionBegins)
        // Half of the distance each time: a few readings while memory falls, none while it does not.
        let half = (sample.available - critical) / 2
        // File pages are being evicted, and it soon shows which of them are read back.
        let isEvicting =
            (hasEvicted || open.churn.evicting >= ThrashingPolicy.leastChurn)
            && ThrashingPolicy.isShort(sample, critical)
        alarm = max(isEvicting ? min(half, Self.leastMargin) : half, Self.leastMargin / 2)
    }

    /// The next reading need not wait.
    mutating func readNow(_ now: Microseconds) {
        if episode != nil { nextReading = now }
    }

    /// Memory has become free: an application has ended.
    mutating func freed(_ now: Microseconds) {
        readNow(now)
        episode?.isOutOfDate = true
        forgetChurn()
    }

    private mutating func follow(
        _ episode: Episode, _ sample: MemorySample, at now: Microseconds, _ settings: PressureSettings
    ) {
        var open = episode
        open.add(sample, at: now)
        let critical = settings.criticalAvailable.bytes(of: sample.total)
        if open.isThrashing(sample, settings) { open.hasThrashed = true }
        let wanted = wanted(open, sample, critical, at: now, settings)
        if wanted > level {
            open.lowSince = nil
            if wanted == .critical || hasDwelt(now) { change(to: wanted, at: now) }
        } else if wanted < level {
            let since = open.lowSince ?? now
            open.lowLevel = open.lowSince == nil ? wanted : max(open.lowLevel, wanted)
            open.lowSince = since
            if now - since >= Self.leastDwell, hasDwelt(now) {
                change(to: open.lowLevel, at: now)
                open.lowSince = nil
            }
        } else {
            open.lowSince = nil
        }
        if level < .critical { open.hasThrashed = false }
        if level == .normal, wanted == .normal {
            self.episode = nil
            nextReading = nil
        } else {
            nextReading = now + pause(open, sample, critical, at: now)
            self.episode = open
        }
    }

    /// Whether only file pages can be paged out: an episode is open, there is no swap, and so little memory
    /// is left that the pages in use are next.
    func wantsFilePages(_ settings: PressureSettings) -> Bool {
        guard level > .normal, let sample = episode?.sample, sample.swapTotal == 0 else { return false }
        return ThrashingPolicy.isShort(sample, settings.criticalAvailable.bytes(of: sample.total))
    }

    /// Whether an application must be ended now: memory is critical, and a process already waits for it or
    /// will in a moment, or three fifths of the critical amount are gone. Low memory alone is not a reason,
    /// and neither is a stall alone: any user can cause a stall in a cgroup that they throttle themselves.
    ///
    /// - Parameters:
    /// - expectedFree: bytes that already count as freed.
    /// - hasEnded: an application was ended in this event.
    /// - hasCheaper: memory can become free without ending an application.
    func wantsRelief(
        at now: Microseconds, expectedFree: UInt64, hasEnded: Bool, hasCheaper: Bool = false,
        _ settings: PressureSettings
    ) -> Bool {
        guard let episode, let sample = episode.sample, !episode.isOutOfDate, level == .critical else {
            return false
        }
        let critical = settings.criticalAvailable.bytes(of: sample.total)
        let left = sample.available + expectedFree + (hasEnded ? sample.perCPU : 0)
        if left < critical / 5 * 2 { return true }
        if left < critical {
            let haste = hasEnded ? Self.haste : Self.firstHaste
            if Double(left) < episode.fall * haste { return true }
            let window = settings.warning.window
            if episode.owesAnswer, now - episode.triggeredAt <= window, episode.isWaiting(at: now, window) {
                return true
            }
        }
        // Half as much above the critical amount is enough once memory was freed: more ends would take more from the user
        // than the pages of files that they save.
        let isAmple = left >= (hasEnded ? critical / 2 * 3 : Self.ample(critical, of: sample.total))
        var counted = sample
        counted.available = left
        if !hasCheaper, expectedFree == 0, !isAmple {
            if episode.isThrashing(counted, settings) { return true }
            if hasEnded, episode.willThrash(within: Self.endDuration) { return true }
        }
        guard episode.owesRelief, let stalledAt = episode.stalledAt,
            now - stalledAt <= settings.critical.window
        else { return false }
        // A cgroup stalls because of its own limit, no matter how much is calculated to be left.
        return sample.isLimited || !isAmple
            || sample.isSwapUsedUp && ThrashingPolicy.isShort(counted, critical)
    }

    /// An application is being ended.
    mutating func relieved() {
        episode?.owesRelief = false
        episode?.owesAnswer = false
        episode?.searchedAt = nil
        forgetChurn()
    }

    /// There is more room, so the pages read back until now do not show what will be needed.
    mutating func forgetChurn() { episode?.churn = FileChurn() }

    private func hasDwelt(_ now: Microseconds) -> Bool {
        changedAt.map { now - $0 >= Self.leastDwell } ?? true
    }

    private mutating func change(to wanted: MemoryPressure, at now: Microseconds) {
        level = wanted
        changedAt = now
    }

    private func wanted(
        _ episode: Episode, _ sample: MemorySample, _ critical: UInt64, at now: Microseconds,
        _ settings: PressureSettings
    ) -> MemoryPressure {
        let isStalled = episode.stalledAt.map { now - $0 <= settings.critical.window } ?? false
        let margin = level == .critical ? critical / 4 * UInt64(Self.relieved) : critical
        if isStalled || sample.available < margin || episode.isThrashing(sample, settings) {
            return .critical
        }
        let isCalm = now - episode.triggeredAt >= max(Self.leastDwell, 2 * settings.warning.window)
        let isAmple = sample.available >= Self.ample(critical, of: sample.total)
        let isLasting =
            episode.fall <= 0
            || Double(sample.available - min(sample.available, critical)) / episode.fall
                > Self.foresight
        return isCalm && isAmple && isLasting ? .normal : .warning
    }

    /// Less than this opens an episode. It is never more than the ample amount, or the end of one episode would begin
    /// the next.
    private static func near(_ critical: UInt64, of total: UInt64) -> UInt64 {
        min(critical + max(critical / 4, leastMargin), halfway(critical, of: total))
    }

    /// At this amount memory has recovered.
    private static func ample(_ critical: UInt64, of total: UInt64) -> UInt64 {
        max(min(critical / 4 * UInt64(recovered), halfway(critical, of: total)), near(critical, of: total))
    }

    /// If twice the critical amount is more than there is, half of what lies above the critical amount is enough.
    private static func halfway(_ critical: UInt64, of total: UInt64) -> UInt64 {
        total - (total - min(critical, total)) / 2
    }

    private func pause(
        _ episode: Episode, _ sample: MemorySample, _ critical: UInt64, at now: Microseconds
    ) -> Microseconds {
        // Pages in use may be evicted next; this shows within some tenths of a second.
        if episode.churn.evicting >= ThrashingPolicy.leastChurn, ThrashingPolicy.isShort(sample, critical) {
            return Self.pauseInNeed
        }
        let isFalling = episode.fall > Self.noticeableFall
        if !isFalling, now - episode.triggeredAt > 5 * Self.leastDwell { return Self.calmPause }
        guard sample.available > critical else {
            let isRunningOut = Double(sample.available) < episode.fall * Self.foresight
            return isRunningOut ? Self.pauseInNeed : Self.longestPause / 2
        }
        guard isFalling else { return Self.longestPause }
        // Half of the distance to the critical amount, or to the next eviction of pages in use.
        let toLine = Double(sample.available - critical)
        let distance = episode.marginUntilThrashing.map { min(toLine, max(Double($0), 0)) } ?? toLine
        let time = distance / episode.fall / 2 * 1_000_000
        return min(max(Microseconds(min(time, 1e9)), Self.shortestPause), Self.longestPause)
    }
}

extension PressureGauge.Episode {
    fileprivate func isThrashing(_ sample: MemorySample, _ settings: PressureSettings) -> Bool {
        ThrashingPolicy.isThrashing(
            churn, sample, critical: settings.criticalAvailable.bytes(of: sample.total),
            limit: settings.thrashingLimit)
    }

    /// Whether a process waits. A trigger of the machine does not show this, because PSI counts the time in which
    /// the kernel itself searches for pages, too (`kswapd`), for example while a large file is copied.
    fileprivate func isWaiting(at now: Microseconds, _ window: Microseconds) -> Bool {
        if sample?.searches == nil { return true }
        if let front = churn.front, front.waiting >= ThrashingPolicy.frontWaiting { return true }
        return searchedAt.map { now - $0 <= window } ?? false
    }

    /// Bytes that can be taken before the kernel evicts file pages, if pages in use were among these before.
    fileprivate var marginUntilThrashing: Int? {
        guard hasThrashed, let room = sample?.room, let evictionBegins else { return nil }
        return room - evictionBegins
    }

    /// Whether pages in use will be lost again, at the present rate of decrease, within this many seconds.
    fileprivate func willThrash(within span: Double) -> Bool {
        isFallingNow && marginUntilThrashing.map { Double($0) < fall * span } == true
    }

    fileprivate mutating func addChurn(_ before: MemorySample, _ sample: MemorySample, span: Double) {
        if churn.evicting < ThrashingPolicy.leastChurn, sample.hasEvicted(since: before) {
            // An old sample does not show where it began, but the kernel keeps close to that.
            evictionBegins = span <= PressureGauge.endDuration ? before.room : sample.room
        }
        churn.add(before, sample, span: span)
    }

    fileprivate mutating func add(_ sample: MemorySample, at now: Microseconds) {
        if let before = self.sample, now > sampledAt {
            let span = Double(now - sampledAt) / 1_000_000
            let pace = (Double(before.available) - Double(sample.available)) / span
            isFallingNow = pace > PressureGauge.noticeableFall
            // Memory is taken in bursts, so older values weigh less: half of them is forgotten in 500 ms.
            // Memory that an end has freed does not show the rate at which others allocate memory.
            if !isOutOfDate || pace > 0 { fall += (pace - fall) * span / (span + 0.5) }
            // The pages that were evicted until then do not show it either.
            if !isOutOfDate {
                addChurn(before, sample, span: span)
                if let old = before.searches, let new = sample.searches, new > old { searchedAt = now }
            }
        }
        self.sample = sample
        isOutOfDate = false
        sampledAt = now
    }
}

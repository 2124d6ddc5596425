public import AppStateContract

/// Memory pressure over all sources, and who is being ended for it.
struct Pressure: Equatable, Sendable {
    /// An application that is being ended; the next has to wait until it is gone.
    struct Victim: Equatable, Sendable {
        let number: ApplicationNumber
        /// Not gone by then, the next is looked at.
        let deadline: Microseconds
    }

    var gauges: [PressureSource: PressureGauge] = [:]
    var level = MemoryPressure.normal
    /// What the end of each application would bring, as it was measured last.
    var sizes: [ApplicationNumber: UInt64] = [:]
    var victim: Victim?
    /// No candidates for the rest of the event: spared, or killed in vain; or said to be ended, in `Mode=observe`.
    var excluded: Set<ApplicationNumber> = []
    /// Whose memory was pushed out since it was suspended.
    var pagedOut: Set<ApplicationNumber> = []
    var kills = 0
    /// `Mode=observe`: what those said to be ended would have brought.
    var promised: UInt64 = 0
    var isExhausted = false
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

    var isEventOpen: Bool { gauges.values.contains(where: \.isEpisodeOpen) }

    var nextDeadline: Microseconds? {
        var earliest: Microseconds?
        for due in gauges.values.map(\.nextSample) + [victim?.deadline, isEventOpen ? measureAt : nil] {
            guard let due else { continue }
            earliest = min(earliest ?? due, due)
        }
        return earliest
    }

    /// All is well again: what was remembered of the event is forgotten.
    mutating func close() {
        excluded = []
        kills = 0
        promised = 0
        isExhausted = false
        measureAt = nil
        measuringSince = nil
        sizes = [:]
    }
}

/// § 6: warn, push out, end; each step only while the pressure lasts.
extension Machine {
    /// The value of `MemoryPressure`.
    public var memoryPressure: MemoryPressure { pressure.level }

    /// The gauge of a source.
    public func pressureGauge(of source: PressureSource) -> PressureGauge? { pressure.gauges[source] }

    /// What the end of an application would bring, where an event has had it measured.
    public func measuredMemory(of number: ApplicationNumber) -> UInt64? { pressure.sizes[number] }

    /// Whether an application could be ended for its memory as things stand, and how near it is; nil: it could not.
    public func reclaimRank(of number: ApplicationNumber) -> ReclaimPolicy.Rank? {
        guard let application = applications[number], application.reclaimable, !application.isTerminating,
            !application.isLaunching
        else { return nil }
        switch application.state {
        case .suspended where application.isStopped:
            return application.foreignStop == nil
                && application.holds.allSatisfy { $0.reason == .policy || $0.reason == .pressure }
                ? .held : .stopped
        case .background where application.suspension == .automatic && application.exemptions.isEmpty
            && !hasLostReporter(application):
            return .background
        case .notRunning, .inactive, .active, .background, .suspended:
            return nil
        }
    }

    mutating func watch(_ sources: [PressureSource], _ effects: inout [Effect]) {
        let kept = pressure.gauges.filter { sources.contains($0.key) }
        pressure.gauges = Dictionary(uniqueKeysWithValues: sources.map { ($0, kept[$0] ?? PressureGauge()) })
        concludeLevel(&effects)
    }

    mutating func triggered(
        _ source: PressureSource, _ level: MemoryPressure, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard pressure.gauges[source] != nil else { return }
        if !pressure.isEventOpen {
            pressure.measureAt = now
            pressure.measuringSince = now
        }
        pressure.gauges[source]?.triggered(level, at: now)
        expirePressure(at: now, &effects)
    }

    mutating func sampled(
        _ source: PressureSource, _ sample: MemorySample, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard var gauge = pressure.gauges[source], gauge.isEpisodeOpen else { return }
        let before = gauge.level
        gauge.sampled(sample, at: now, settings.pressure)
        pressure.gauges[source] = gauge
        concludeLevel(&effects)
        if gauge.level > before { warn(source, gauge.level, at: now, &effects) }
        if gauge.level > .normal { pageOut(source, sample, &effects) }
        relieve(at: now, &effects)
        if !pressure.isEventOpen { pressure.close() }
    }

    mutating func measured(
        _ sizes: [ApplicationNumber: UInt64], at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard pressure.isEventOpen else { return }
        pressure.measuringSince = nil
        pressure.sizes = sizes.filter { applications[$0.key] != nil }
        for (source, gauge) in pressure.gauges where gauge.level > .normal {
            if let sample = gauge.sample { pageOut(source, sample, &effects) }
        }
        relieve(at: now, &effects)
    }

    mutating func spared(
        _ number: ApplicationNumber, _ why: String, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard applications[number]?.termination?.verdict == .reclaimed else { return }
        pressure.excluded.insert(number)
        effects.append(.notice(number, .spared(why)))
        update(number, .pressure, at: now, &effects) { $0.termination = nil }
        ended(number, at: now, &effects)
    }

    /// An application is no longer being ended: it is gone, or it was spared.
    mutating func ended(_ number: ApplicationNumber, at now: Microseconds, _ effects: inout [Effect]) {
        if applications[number] == nil {
            pressure.sizes[number] = nil
            pressure.pagedOut.remove(number)
            pressure.excluded.remove(number)
        }
        guard pressure.victim?.number == number else { return }
        pressure.victim = nil
        lookAgain(at: now, &effects)
    }

    mutating func expirePressure(at now: Microseconds, _ effects: inout [Effect]) {
        if let victim = pressure.victim, victim.deadline <= now {
            pressure.victim = nil
            pressure.excluded.insert(victim.number)
            effects.append(.notice(victim.number, .reclaimStuck(after: settings.pressure.killWait)))
            lookAgain(at: now, &effects)
        }
        if pressure.isEventOpen, let due = pressure.measureAt, due <= now {
            pressure.measureAt = now + Pressure.measureEvery
            effects.append(.measureMemory(applications.keys.sorted()))
        }
        for source in pressure.gauges.keys.sorted(by: { $0.path < $1.path }) {
            guard let due = pressure.gauges[source]?.nextSample, due <= now else { continue }
            pressure.gauges[source]?.willSample()
            effects.append(.sampleMemory(source))
        }
    }

    /// In front, it is never ended: what was begun in the background is called off.
    func decideReclaim(_ next: inout Application, _ effects: inout [Effect]) {
        guard next.termination?.verdict == .reclaimed, next.termination?.killAt != nil,
            next.state == .active || next.state == .inactive
        else { return }
        next.termination = nil
        effects.append(.notice(next.number, .spared("it has come to the front")))
    }

    // MARK: The steps

    private mutating func concludeLevel(_ effects: inout [Effect]) {
        let level = pressure.gauges.values.map(\.level).max() ?? .normal
        guard level != pressure.level else { return }
        pressure.level = level
        effects.append(.memoryPressureChanged(level))
    }

    private mutating func warn(
        _ source: PressureSource, _ level: MemoryPressure, at now: Microseconds, _ effects: inout [Effect]
    ) {
        effects.append(.lowMemoryWarning(level == .critical ? .medium : .low))
        for number in applications.keys.sorted() {
            guard let application = applications[number], source.concerns(application),
                application.state != .suspended, application.state != .notRunning, application.isReachable
            else { continue }
            updateAnnouncing(number, .pressure, at: now, &effects) {
                $0.announce(.didReceiveMemoryWarning(level), &$1)
            }
        }
    }

    private mutating func pageOut(
        _ source: PressureSource, _ sample: MemorySample, _ effects: inout [Effect]
    ) {
        guard sample.swapTotal > 0, settings.mode == .enforce else { return }
        pressure.pagedOut = pressure.pagedOut.filter { applications[$0]?.state == .suspended }
        let suspended = applications.values.filter {
            source.concerns($0) && $0.state == .suspended && !$0.isTerminating
                && !pressure.pagedOut.contains($0.number)
                && pressure.sizes[$0.number, default: 0] > Pressure.leastPageOut
        }
        for application in suspended.sorted(by: { $0.stateSince < $1.stateSince }) {
            pressure.pagedOut.insert(application.number)
            effects.append(.pageOut(application.number))
        }
    }

    private mutating func lookAgain(at now: Microseconds, _ effects: inout [Effect]) {
        for source in pressure.gauges.keys { pressure.gauges[source]?.sampleNow(now) }
        expirePressure(at: now, &effects)
    }

    private mutating func relieve(at now: Microseconds, _ effects: inout [Effect]) {
        guard pressure.victim == nil,
            pressure.measuringSince.map({ now - $0 > Pressure.measureWait }) ?? true
        else { return }
        for source in pressure.gauges.keys.sorted(by: { $0.path < $1.path }) {
            guard pressure.gauges[source]?.wantsRelief(
                at: now, promised: pressure.promised, settings.pressure) == true,
                let victim = victim(of: source, at: now)
            else { continue }
            if victim.rank == .background, !pressure.isExhausted {
                pressure.isExhausted = true
                effects.append(.lowMemoryWarning(.critical))
            }
            end(victim, at: now, &effects)
            pressure.gauges[source]?.relieved()
            return
        }
    }

    private func victim(of source: PressureSource, at now: Microseconds) -> ReclaimPolicy.Candidate? {
        var candidates: [ReclaimPolicy.Candidate] = []
        var usage: [UInt32: UInt64] = [:]
        for application in applications.values {
            let bytes = pressure.sizes[application.number] ?? 0
            usage[application.user, default: 0] += bytes
            guard source.concerns(application), !pressure.excluded.contains(application.number),
                let rank = reclaimRank(of: application.number)
            else { continue }
            candidates.append(
                ReclaimPolicy.Candidate(
                    application.number, user: application.user, rank: rank,
                    age: now - min(now, application.stateSince), bytes: bytes))
        }
        return ReclaimPolicy.first(of: candidates, usage: usage)
    }

    private mutating func end(
        _ victim: ReclaimPolicy.Candidate, at now: Microseconds, _ effects: inout [Effect]
    ) {
        let number = victim.number
        guard settings.mode == .enforce else {
            pressure.excluded.insert(number)
            pressure.promised += victim.bytes
            effects.append(.notice(number, .wouldReclaim(victim.bytes)))
            return
        }
        guard pressure.kills < settings.pressure.killsPerEvent else {
            if pressure.kills == settings.pressure.killsPerEvent {
                pressure.kills += 1
                effects.append(.notice(number, .reclaimLimit(settings.pressure.killsPerEvent)))
            }
            return
        }
        pressure.kills += 1
        let wait = settings.pressure.killWait
        switch victim.rank {
        case .held, .stopped:
            pressure.victim = Pressure.Victim(number: number, deadline: now.advanced(saturatingBy: wait))
            update(number, .pressure, at: now, &effects) {
                $0.termination = Application.Termination(
                    serial: 0, requestExitAt: nil, killAt: nil, verdict: .reclaimed, isExitRequested: true)
            }
            effects.append(.reclaim(number))
        case .background:
            let grace = settings.pressure.terminateGrace
            pressure.victim = Pressure.Victim(
                number: number, deadline: now.advanced(saturatingBy: grace).advanced(saturatingBy: wait))
            effects.append(.willReclaim(number))
            announceEnd(of: number, .reclaimed, within: grace, .pressure, at: now, &effects)
        }
    }
}

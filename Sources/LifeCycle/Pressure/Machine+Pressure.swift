public import AppStateContract

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
        // What is being continued runs already, for all we know, and so does what breathes.
        case .suspended
        where application.isStopped && application.enforcement != .continuing
            && !application.breath.isUnderWay:
            return application.foreignStop == nil && application.isHeldByDecision ? .held : .stopped
        case .background
        where application.suspension == .automatic && application.enforcement == .none
            && application.exemptions.isEmpty && !hasLostReporter(application):
            return .background
        case .notRunning, .inactive, .active, .background, .suspended:
            return nil
        }
    }

    mutating func watch(_ sources: [PressureSource], at now: Microseconds, _ effects: inout [Effect]) {
        let kept = pressure.gauges
        pressure.gauges = [:]
        for source in sources {
            pressure.gauges[source] = kept[source] ?? PressureGauge()
            if kept[source] == nil { effects.append(.sampleMemory(source)) }
        }
        concludeLevel(at: now, &effects)
        if !pressure.isEventOpen { pressure.close() }
    }

    mutating func triggered(
        _ source: PressureSource, _ level: MemoryPressure, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard let gauge = pressure.gauges[source] else { return }
        if !gauge.isEpisodeOpen { effects.append(.alarmMemory(source, after: nil)) }
        willOpen(at: now)
        pressure.gauges[source]?.triggered(level, at: now)
        expirePressure(at: now, &effects)
    }

    private mutating func willOpen(at now: Microseconds) {
        guard !pressure.isEventOpen else { return }
        pressure.measureAt = now
        pressure.measuringSince = now
    }

    mutating func sampled(
        _ source: PressureSource, _ sample: MemorySample, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard var gauge = pressure.gauges[source] else { return }
        if !gauge.isEpisodeOpen {
            let bytes = gauge.looked(at: sample, at: now, settings.pressure)
            effects.append(.alarmMemory(source, after: bytes))
            guard bytes == nil else { return }
            willOpen(at: now)
            pressure.gauges[source] = gauge
            expirePressure(at: now, &effects)
            return
        }
        let before = gauge.level
        gauge.sampled(sample, at: now, settings.pressure)
        pressure.gauges[source] = gauge
        concludeLevel(at: now, &effects)
        if gauge.level > before { warn(source, gauge.level, at: now, &effects) }
        if gauge.level > .normal { pageOut(source, sample, &effects) }
        relieve(at: now, &effects)
        if !gauge.isEpisodeOpen { effects.append(.sampleMemory(source)) }
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
        effects.append(.notice(number, .spared(why)))
        update(number, .pressure, at: now, &effects) { $0.termination = nil }
    }

    /// An application that was being ended goes on living.
    mutating func calledOff(_ number: ApplicationNumber, at now: Microseconds, _ effects: inout [Effect]) {
        if pressure.isEventOpen {
            pressure.excluded.insert(number)
            pressure.kills -= min(1, pressure.kills)
        }
        ended(number, at: now, &effects)
    }

    /// An application is no longer being ended: it is gone, given up, or it was spared.
    mutating func ended(_ number: ApplicationNumber, at now: Microseconds, _ effects: inout [Effect]) {
        if applications[number] == nil {
            pressure.sizes[number] = nil
            pressure.pagedOut[number] = nil
            pressure.promised[number] = nil
            pressure.excluded.remove(number)
        }
        guard pressure.victim?.number == number else { return }
        pressure.victim = nil
        lookAgain(at: now, &effects)
    }

    mutating func expirePressure(at now: Microseconds, _ effects: inout [Effect]) {
        concludeLevel(at: now, &effects)
        if let victim = pressure.victim, victim.deadline <= now {
            pressure.victim = nil
            if pressure.isEventOpen { pressure.excluded.insert(victim.number) }
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

    /// What was begun in the background is called off where it may not be ended any more: in front, it never is.
    func decideReclaim(_ next: inout Application, _ effects: inout [Effect]) {
        guard next.termination?.verdict == .reclaimed, next.termination?.killAt != nil,
            let why = objectionToReclaim(next)
        else { return }
        next.termination = nil
        effects.append(.notice(next.number, .spared(why)))
    }

    private func objectionToReclaim(_ application: Application) -> String? {
        if application.state == .active || application.state == .inactive {
            return "it has come to the front"
        }
        if !application.reclaimable { return "it is not reclaimable any more" }
        return settings.mode == .observe ? "the configuration says observe" : nil
    }

    // MARK: The steps

    /// The level of all is the highest, but it keeps to `rest`, too: sources change at different times.
    private mutating func concludeLevel(at now: Microseconds, _ effects: inout [Effect]) {
        let level = pressure.highest
        guard level != pressure.level, pressure.levelDue.map({ $0 <= now }) ?? true else { return }
        pressure.level = level
        pressure.levelChangedAt = now
        effects.append(.memoryPressureChanged(level))
    }

    private mutating func warn(
        _ source: PressureSource, _ level: MemoryPressure, at now: Microseconds, _ effects: inout [Effect]
    ) {
        // What another source has told already is not told again.
        let others = pressure.gauges.filter { $0.key != source && $0.value.level >= level }.keys
        if others.isEmpty { effects.append(.lowMemoryWarning(level == .critical ? .medium : .low)) }
        for number in applications.keys.sorted() {
            guard let application = applications[number], source.concerns(application),
                application.state != .suspended, application.state != .notRunning, application.isReachable,
                !others.contains(where: { $0.concerns(application) })
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
        let suspended = applications.values.filter {
            source.concerns($0) && $0.state == .suspended && !$0.isTerminating
                && pressure.pagedOut[$0.number] != $0.stateSince
                && pressure.sizes[$0.number, default: 0] > Pressure.leastPageOut
        }
        for application in suspended.sorted(by: { ($0.stateSince, $0.number) < ($1.stateSince, $1.number) }) {
            pressure.pagedOut[application.number] = application.stateSince
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
        // Promises are nothing that was given back.
        if settings.mode == .enforce { pressure.promised = [:] }
        for source in pressure.gauges.keys.sorted(by: { $0.path < $1.path }) {
            let wantsRelief = pressure.gauges[source]?.wantsRelief(
                at: now, promised: promised(to: source), hasEnded: pressure.kills > 0, settings.pressure)
            guard wantsRelief == true else { continue }
            let victim = victim(of: source, at: now)
            if victim == nil || victim?.rank == .background, !pressure.isExhausted {
                pressure.isExhausted = true
                effects.append(.lowMemoryWarning(.critical))
            }
            guard let victim else { continue }
            end(victim, at: now, &effects)
            // One stall, one end, however many sources have told of it.
            for other in pressure.gauges.keys where other.user == nil || other.user == victim.user {
                pressure.gauges[other]?.relieved()
            }
            return
        }
    }

    private func promised(to source: PressureSource) -> UInt64 {
        pressure.promised.reduce(0) { sum, promise in
            applications[promise.key].map(source.concerns) == true ? sum + promise.value : sum
        }
    }

    private func victim(of source: PressureSource, at now: Microseconds) -> ReclaimPolicy.Candidate? {
        var candidates: [ReclaimPolicy.Candidate] = []
        var usage: [UInt32: UInt64] = [:]
        for application in applications.values {
            let bytes = pressure.sizes[application.number] ?? 0
            usage[application.user, default: 0] += bytes
            guard source.concerns(application), !pressure.excluded.contains(application.number),
                pressure.promised[application.number] == nil,
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
            pressure.promised[number] = victim.bytes
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

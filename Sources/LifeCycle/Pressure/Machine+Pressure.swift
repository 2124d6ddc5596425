public import AppStateContract

/// § 6: warn, push out, end; each step only while the pressure lasts.
extension Machine {
    /// The value of `MemoryPressure`.
    public var memoryPressure: MemoryPressure { pressure.level }

    /// What the end of an application would bring, where an event has had it measured.
    public func measuredMemory(of number: ApplicationNumber) -> UInt64? { pressure.sizes[number] }

    /// `Mode=observe`: how many bytes the end of this application would have given back, where the present memory
    /// event would have ended it; nil otherwise.
    public func wouldBeReclaimed(_ number: ApplicationNumber) -> UInt64? {
        settings.mode == .observe ? pressure.promised[number] : nil
    }

    /// Whether an application could be ended for its memory as things stand, and how near it is; nil: it could not.
    public func reclaimRank(of number: ApplicationNumber) -> ReclaimPolicy.Rank? {
        guard let application = applications[number], application.reclaimable, !application.isTerminating,
            !application.isLaunching
        else { return nil }
        switch application.state {
        // What is being continued runs already, for all we know, and so does what breathes.
        case .suspended
        where application.isStopped && application.stop.enforcement != .continuing
            && !application.stop.breath.isUnderWay:
            return application.stop.others == nil && application.isHeldByDecision ? .held : .stopped
        case .background
        where application.suspension == .automatic && application.stop.enforcement == .none
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
            let gauge = kept[source] ?? PressureGauge()
            pressure.gauges[source] = gauge
            // Whoever watches it anew has forgotten its alarm.
            if !gauge.isEpisodeOpen { effects.append(.sampleMemory(source)) }
        }
        for (source, gauge) in kept where pressure.gauges[source] == nil && gauge.level == .critical {
            relax(source)
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
        if before == .critical, gauge.level < .critical { relax(source) }
        concludeLevel(at: now, &effects)
        if gauge.level > before { warn(source, gauge.level, at: now, &effects) }
        pageOut(&effects)
        relieve(at: now, &effects)
        if !gauge.isEpisodeOpen { effects.append(.sampleMemory(source)) }
        if !pressure.isEventOpen { pressure.close() }
    }

    mutating func measured(
        _ sizes: [ApplicationNumber: UInt64], _ members: [PressureSource: Set<ApplicationNumber>],
        at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard pressure.isEventOpen else { return }
        pressure.measuringSince = nil
        pressure.sizes = sizes.filter { applications[$0.key] != nil }
        pressure.members = members
        pageOut(&effects)
        relieve(at: now, &effects)
    }

    mutating func pagedOut(_ number: ApplicationNumber, _ effects: inout [Effect]) {
        guard pressure.beingPagedOut.remove(number) != nil else { return }
        pageOut(&effects)
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
            if let victim = pressure.victim, victim.number == number {
                pressure.kills[victim.source, default: 1] -= 1
            }
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
        guard next.termination?.verdict == .reclaimed, next.termination?.dueKill != nil,
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

    // MARK: The levels

    /// A source is critical no longer: what its event has cost, and who was spared in it, is counted anew. Below twice
    /// what is critical an event may stay open for days.
    private mutating func relax(_ source: PressureSource) {
        pressure.kills[source] = nil
        pressure.exhausted.remove(source)
        let others = Set(applications.values.filter { !source.concerns($0) }.map(\.number))
        pressure.excluded.formIntersection(others)
        pressure.promised = pressure.promised.filter { others.contains($0.key) }
    }

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
        // One user's slice is no matter of everybody's.
        if source.user == nil, !others.contains(where: { $0.user == nil }) {
            effects.append(.lowMemoryWarning(level == .critical ? .medium : .low))
        }
        for number in applications.keys.sorted() {
            guard let application = applications[number], source.concerns(application),
                application.state != .suspended, application.state != .notRunning, application.isReachable,
                !others.contains(where: { $0.concerns(application) })
            else { continue }
            updateAnnouncing(number, .pressure, at: now, &effects) {
                $0.announce(.didReceiveMemoryWarning, with: .level(level), &$1)
            }
        }
    }

    private mutating func lookAgain(at now: Microseconds, _ effects: inout [Effect]) {
        for source in pressure.gauges.keys { pressure.gauges[source]?.sampleNow(now) }
        expirePressure(at: now, &effects)
    }
}

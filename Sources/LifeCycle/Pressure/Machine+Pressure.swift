public import AppStateContract

/// § 6: warn, page out, end; each step only while the pressure lasts.
extension Machine {
    /// The value of `MemoryPressure`.
    public var memoryPressure: MemoryPressure { pressure.level }

    /// The memory that the end of an application would free, if it was measured in an event.
    public func measuredMemory(of number: ApplicationNumber) -> UInt64? { pressure.sizes[number] }

    /// Whether an application was ended for the memory of a source in the present event. From then on, the pages on
    /// the per-CPU lists count as left.
    public func hasEnded(for source: PressureSource) -> Bool { pressure.hasEnded(for: source) }

    /// The active application that a source concerns; nil: there is none, or there are several, each in its
    /// own session.
    public func front(of source: PressureSource) -> ApplicationNumber? {
        var found: ApplicationNumber?
        for application in applications.values
        where application.state == .active && source.concerns(application) {
            if found != nil { return nil }
            found = application.number
        }
        return found
    }

    /// `Mode=observe`: the bytes that the end of this application would have freed, if the present memory
    /// event would have ended it; nil otherwise.
    public func wouldBeReclaimed(_ number: ApplicationNumber) -> UInt64? {
        settings.mode == .observe ? pressure.promised[number] : nil
    }

    /// Whether an application could be ended for its memory at present, and how near to that it is; nil: it could not.
    public func reclaimRank(of application: Application) -> ReclaimPolicy.Rank? {
        switch application.state {
        // An application that is being continued or drained may already run.
        case .suspended
        where application.stop.enforcement == .continuing || application.stop.drain.isUnderWay:
            nil
        case .background where application.stop.enforcement != .none: nil
        case .notRunning, .inactive, .active, .background, .suspended: lastingRank(of: application)
        }
    }

    /// The same, without regard to moments: what clients read.
    func lastingRank(of application: Application) -> ReclaimPolicy.Rank? {
        guard application.reclaimable, !application.isTerminating, !application.isLaunching else {
            return nil
        }
        switch application.state {
        case .suspended
        where application.isStopped
            // A visible window of an application that policy has suspended must not disappear.
            && (application.windowLevel == .hidden || !application.isHeldByDecision):
            return application.stop.others == nil && application.wish != .stop ? .held : .stopped
        case .background
        where application.suspension == .automatic && !hasLostReporter(application):
            if application.exemptions.isEmpty { return .background }
            return application.isContinuing ? .continued : nil
        case .notRunning, .inactive, .active, .background, .suspended:
            return nil
        }
    }

    mutating func watch(_ sources: [PressureSource]) {
        let kept = pressure.gauges
        pressure.gauges = [:]
        for source in sources {
            let gauge = kept[source] ?? PressureGauge()
            pressure.gauges[source] = gauge
            // A watcher that has been restarted has lost its alarm.
            if !gauge.isEpisodeOpen { step.effects.append(.sampleMemory(source)) }
        }
        for (source, gauge) in kept where pressure.gauges[source] == nil && gauge.level == .critical {
            relax(source)
        }
        concludeLevel()
        if !pressure.isEventOpen { pressure.close() }
    }

    mutating func triggered(_ source: PressureSource, _ level: MemoryPressure) {
        guard let gauge = pressure.gauges[source] else { return }
        if !gauge.isEpisodeOpen { step.effects.append(.alarmMemory(source, after: nil)) }
        willOpen()
        pressure.gauges[source]?.triggered(level, at: step.now)
        lookAtMachine(with: source)
        expirePressure()
    }

    /// The machine may be short of memory, too, although its own trigger has not fired yet.
    private mutating func lookAtMachine(with source: PressureSource) {
        guard isOfMachine(source) else { return }
        for (other, gauge) in pressure.gauges where other.isMachine && !gauge.isEpisodeOpen {
            step.effects.append(.sampleMemory(other))
        }
    }

    /// Whether a source has no limit of its own, as far as is known, and so shares the machine's memory.
    func isOfMachine(_ source: PressureSource) -> Bool {
        pressure.gauges[source]?.sample?.isLimited != true
    }

    private mutating func willOpen() {
        guard !pressure.isEventOpen else { return }
        pressure.measuredAt = nil
        pressure.measuringSince = step.now
        endDrains()
    }

    mutating func sampled(_ source: PressureSource, _ sample: MemorySample) {
        guard var gauge = pressure.gauges[source] else { return }
        if !gauge.isEpisodeOpen {
            let bytes = gauge.looked(at: sample, at: step.now, settings.pressure)
            if bytes == nil { willOpen() }
            pressure.gauges[source] = gauge
            step.effects.append(.alarmMemory(source, after: bytes))
            if bytes == nil { expirePressure() }
            return
        }
        let before = gauge.level
        gauge.sampled(sample, at: step.now, settings.pressure)
        pressure.gauges[source] = gauge
        if before == .critical, gauge.level < .critical { relax(source) }
        concludeLevel()
        if gauge.level > before { warn(source, gauge.level) }
        pageOut()
        relieve()
        if !gauge.isEpisodeOpen { step.effects.append(.sampleMemory(source)) }
        if !pressure.isEventOpen { pressure.close() }
    }

    mutating func measured(
        _ sizes: [ApplicationNumber: UInt64], _ members: [PressureSource: Set<ApplicationNumber>]
    ) {
        guard pressure.isEventOpen else { return }
        pressure.measuringSince = nil
        pressure.sizes = sizes.filter { applications[$0.key] != nil }
        pressure.members = members
        pageOut()
        relieve()
    }

    mutating func pagedOut(_ number: ApplicationNumber, _ bytes: UInt64) {
        guard pressure.beingPagedOut.remove(number) != nil else { return }
        pressure.broughtByPageOut += bytes
        pageOut()
        guard pressure.beingPagedOut.isEmpty else { return }
        if pressure.broughtByPageOut >= Pressure.noticeablePageOut {
            forgetChurn()
        }
        pressure.broughtByPageOut = 0
        pressure.pageOutsWaitedUntil = nil
        // Sources that waited for this are sampled without delay.
        for source in pressure.gauges.keys { pressure.gauges[source]?.hasten(step.now) }
        expirePressure()
    }

    mutating func spared(_ number: ApplicationNumber, _ why: String) {
        guard [.reclaimed, .unresponsive].contains(applications[number]?.termination?.verdict) else { return }
        step.effects.append(.notice(number, .spared(why)))
        update(number, .policy) { $0.termination = nil }
    }

    /// Memory could not be read at present.
    mutating func failedToSample(_ source: PressureSource) {
        guard var gauge = pressure.gauges[source] else { return }
        let bytes = gauge.failedToSample(at: step.now)
        pressure.gauges[source] = gauge
        if let bytes { step.effects.append(.alarmMemory(source, after: bytes)) }
    }

    /// The memory of a killed application's processes begins, or has ceased, to be released. The main process may be
    /// gone long before the others.
    mutating func releasing(_ number: ApplicationNumber, isOver: Bool) {
        guard pressure.victim?.number == number else { return }
        pressure.victim?.isBeingReleased = !isOver
        if isOver, pressure.victim?.isGone == true { concludeEnd() }
    }

    /// An application that was being ended keeps running.
    mutating func calledOff(_ number: ApplicationNumber) {
        pressure.dying.remove(number)
        if pressure.isEventOpen {
            pressure.excluded.insert(number)
            if let victim = pressure.victim, victim.number == number {
                for source in victim.counting { pressure.kills[source, default: 1] -= 1 }
            }
        }
        ended(number)
    }

    /// An earlier daemon has begun to end the application for its memory: no other is ended meanwhile.
    mutating func awaitReclaim(of number: ApplicationNumber, _ termination: Termination) {
        guard termination.verdict == .reclaimed else { return }
        pressure.dying.insert(number)
        step.effects.append(.willReclaim(number))
        guard pressure.victim == nil else { return }
        let due = termination.dueKill ?? step.now
        pressure.victim = Pressure.Victim(
            number: number, counting: [], deadline: due.advanced(saturatingBy: settings.pressure.killWait))
    }

    /// An application is no longer being ended: it is gone, was unregistered, or was spared.
    mutating func ended(_ number: ApplicationNumber) {
        if applications[number] == nil {
            pressure.sizes[number] = nil
            pressure.pagedOut[number] = nil
            pressure.promised[number] = nil
            pressure.excluded.remove(number)
            // This also applies to a victim that was no longer awaited: its memory has become free only now.
            if pressure.dying.remove(number) != nil { forgetChurn() }
        }
        guard let victim = pressure.victim, victim.number == number else { return }
        if applications[number] == nil, victim.isBeingReleased {
            pressure.victim?.isGone = true
        } else {
            concludeEnd()
        }
    }

    private mutating func concludeEnd() {
        pressure.victim = nil
        forgetChurn()
        lookAgain()
    }

    mutating func expirePressure() {
        concludeLevel()
        if let victim = pressure.victim, victim.deadline <= step.now {
            if !victim.isGone {
                if pressure.isEventOpen { pressure.excluded.insert(victim.number) }
                step.effects.append(
                    .notice(victim.number, .reclaimStuck(after: settings.pressure.killWait)))
            }
            concludeEnd()
        }
        if let due = pressure.measureAt, due <= step.now {
            pressure.measuredAt = step.now
            step.effects.append(.measureMemory(applications.keys.sorted()))
        }
        // Sources without a limit of their own share the machine's memory. They are sampled together, the machine
        // first: otherwise the source that is due first would decide whose application is ended.
        let shared = Set(pressure.gauges.keys.filter(isOfMachine))
        func isDue(_ source: PressureSource) -> Bool {
            pressure.gauges[source]?.nextSample.map { $0 <= step.now } ?? false
        }
        let isSharedDue = shared.contains(where: isDue)
        for source in pressure.gauges.keys.sorted(by: { $0.path < $1.path }) {
            guard pressure.gauges[source]?.nextSample != nil,
                isDue(source) || isSharedDue && shared.contains(source)
            else { continue }
            pressure.gauges[source]?.willSample()
            step.effects.append(.sampleMemory(source))
        }
    }

    /// An end that began in the background is cancelled if the application must no longer be ended. A
    /// foreground application must never be ended.
    mutating func decideReclaim(_ next: inout Application) {
        guard next.termination?.verdict == .reclaimed, next.termination?.dueKill != nil,
            let why = objectionToReclaim(next)
        else { return }
        next.termination = nil
        step.effects.append(.notice(next.number, .spared(why)))
    }

    private func objectionToReclaim(_ application: Application) -> String? {
        if application.state == .active || application.state == .inactive {
            return "it has come to the front"
        }
        if !application.reclaimable { return "it is no longer reclaimable" }
        return settings.mode == .observe ? "the configuration says observe" : nil
    }

    // MARK: The levels

    /// A source is no longer critical: the numbers of ended and spared applications start again. Below twice
    /// the critical amount an event may stay open for days.
    private mutating func relax(_ source: PressureSource) {
        pressure.kills[source] = nil
        pressure.exhausted.remove(source)
        // For other sources that are still critical, the event goes on.
        let critical = pressure.gauges.filter { $0.key != source && $0.value.level == .critical }.keys
        let others = Set(
            applications.values.filter { application in
                !source.concerns(application) || critical.contains { $0.concerns(application) }
            }.map(\.number))
        pressure.excluded.formIntersection(others)
        pressure.promised = pressure.promised.filter { others.contains($0.key) }
    }

    /// The overall level is the highest of all sources, but it keeps to `rest`, too: sources change at different times.
    private mutating func concludeLevel() {
        let level = pressure.highest
        guard level != pressure.level, pressure.levelDue.map({ $0 <= step.now }) ?? true else { return }
        pressure.level = level
        pressure.levelChangedAt = step.now
        step.effects.append(.memoryPressureChanged(level))
    }

    private mutating func warn(_ source: PressureSource, _ level: MemoryPressure) {
        // What another source has already announced is not announced again.
        let others = pressure.gauges.filter { $0.key != source && $0.value.level >= level }.keys
        // The pressure in one user's slice does not concern every user.
        if source.user == nil, !others.contains(where: { $0.user == nil }) {
            step.effects.append(.lowMemoryWarning(level == .critical ? .medium : .low))
        }
        let concerned = applications.values.filter { application in
            source.concerns(application) && !others.contains { $0.concerns(application) }
        }.map(\.number).sorted()
        for number in concerned { warn(number, level) }
    }

    /// Applications that could not react are not warned.
    private mutating func warn(_ number: ApplicationNumber, _ level: MemoryPressure) {
        guard let application = applications[number], application.isReachable,
            application.state != .suspended, application.state != .notRunning
        else { return }
        updateAnnouncing(number, .policy) {
            $0.announce(.didReceiveMemoryWarning, with: .level(level), &$1)
        }
    }

    private mutating func forgetChurn() {
        for source in pressure.gauges.keys { pressure.gauges[source]?.forgetChurn() }
    }

    private mutating func lookAgain() {
        for source in pressure.gauges.keys { pressure.gauges[source]?.sampleNow(step.now) }
        expirePressure()
    }
}

public import AppStateContract

/// § 6: warn, page out, end; each step only while the pressure lasts.
extension Machine {
    /// The value of `MemoryPressure`.
    public var memoryPressure: MemoryPressure { pressure.level }

    /// The memory that the end of an application would free, if it was measured in an event.
    public func measuredMemory(of number: ApplicationNumber) -> UInt64? { pressure.sizes[number] }

    // MARK: What is read

    /// When memory must be read at the latest, in an event; nil: not before a trigger fires or `memoryAlarm` is used up.
    public var nextReading: Microseconds? {
        let reading = pressure.gauges.values.lazy.compactMap(\.nextReading).min()
        guard let due = pressure.measureAt else { return reading }
        return min(reading ?? due, due)
    }

    /// How many bytes may be allocated before memory must be read; nil: it is read anyway, or nothing is watched.
    public var memoryAlarm: UInt64? {
        pressure.isEventOpen ? nil : pressure.gauges.values.lazy.compactMap(\.alarm).min()
    }

    /// Whether a reading must contain the sizes of applications: this is slow.
    ///
    /// - Parameter hasTriggered: a trigger has fired, which begins an event.
    public func needsSizes(at now: Microseconds, hasTriggered: Bool) -> Bool {
        pressure.measureAt.map { $0 <= now } ?? hasTriggered
    }

    /// Whether a reading must contain the pages on the per-CPU lists: they count once an application was ended in the
    /// present event.
    public var needsCPULists: Bool { pressure.kills.contains { $0.value > 0 } }

    /// The active application that a source concerns; nil: there is none, or there are several, each in its
    /// own session.
    public func front(of source: PressureSource) -> ApplicationNumber? {
        var found: ApplicationNumber?
        for application in applications.values
        where application.state == .active && source.covers(application) {
            if found != nil { return nil }
            found = application.number
        }
        return found
    }

    /// `Mode=observe`: the bytes that the end of this application would have freed, if the present memory
    /// event would have ended it; nil otherwise.
    public func wouldBeReclaimed(_ number: ApplicationNumber) -> UInt64? {
        settings.mode == .observe ? pressure.expectedFree[number] : nil
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
            return application.stop.foreignHolder == nil && application.requirement != .stop
                ? .held : .stopped
        case .background
        where application.suspension == .automatic && !hasLostReporter(application):
            if application.objections.isEmpty { return .background }
            return application.isContinuing ? .continued : nil
        case .notRunning, .inactive, .active, .background, .suspended:
            return nil
        }
    }

    // MARK: What happens

    /// Sources that are not among the readings are no longer watched.
    mutating func read(_ readings: MemoryReadings) {
        let before = pressure.gauges
        let wasOpen = pressure.isEventOpen
        pressure.gauges = [:]
        for (source, reading) in readings.sources {
            var gauge = before[source] ?? PressureGauge()
            if let trigger = reading.trigger { gauge.triggered(trigger, at: step.now) }
            gauge.update(reading.sample, at: step.now, settings.pressure)
            pressure.gauges[source] = gauge
        }
        if pressure.isEventOpen, !wasOpen { endDrains() }
        if pressure.isEventOpen, let sizes = readings.sizes {
            pressure.measuredAt = step.now
            pressure.sizes = sizes.bytes.filter { applications[$0.key] != nil }
            pressure.members = sizes.members
        }
        for (source, gauge) in before
        where gauge.level == .critical && pressure.gauges[source]?.level != .critical {
            leaveCritical(source)
        }
        concludeLevel()
        warn(before)
        pageOut()
        relieve()
        if !pressure.isEventOpen { pressure.close() }
    }

    mutating func pagedOut(_ number: ApplicationNumber, _ bytes: UInt64) {
        guard pressure.beingPagedOut.remove(number) != nil else { return }
        pressure.freedByPageOut += bytes
        pageOut()
        guard pressure.beingPagedOut.isEmpty else { return }
        if pressure.freedByPageOut >= Pressure.noticeablePageOut {
            forgetChurn()
        }
        pressure.freedByPageOut = 0
        pressure.pageOutsWaitedUntil = nil
        // Sources that waited for this are read without delay.
        for source in pressure.gauges.keys { pressure.gauges[source]?.readNow(step.now) }
    }

    mutating func spared(_ number: ApplicationNumber, _ why: String) {
        guard [.reclaimed, .unresponsive].contains(applications[number]?.termination?.verdict) else { return }
        step.effects.append(.notice(number, .spared(why)))
        update(number, .policy) { $0.termination = nil }
    }

    /// The memory of all processes of a killed application is released. The main process may be gone long before.
    mutating func released(_ number: ApplicationNumber) {
        guard pressure.victim?.number == number else { return }
        pressure.victim?.awaitsRelease = false
        if pressure.victim?.isGone == true { concludeEnd() }
    }

    /// An application that was being ended keeps running.
    mutating func calledOff(_ number: ApplicationNumber) {
        let victim = pressure.victim?.number == number ? pressure.victim : nil
        if pressure.isEventOpen {
            pressure.excluded.insert(number)
            for source in victim?.counting ?? [] { pressure.kills[source, default: 1] -= 1 }
        }
        if victim != nil { concludeEnd() }
    }

    /// An earlier daemon has begun to end the application for its memory: no other is ended meanwhile.
    mutating func awaitReclaim(of number: ApplicationNumber, _ termination: Termination) {
        guard termination.verdict == .reclaimed else { return }
        step.effects.append(.willReclaim(number))
        guard pressure.victim == nil else { return }
        let due = termination.dueKill ?? step.now
        pressure.victim = Pressure.Victim(
            number: number, counting: [], deadline: due.advanced(saturatingBy: settings.pressure.killWait))
    }

    /// An application has ended, or was unregistered.
    mutating func forgetPressure(_ application: Application) {
        let number = application.number
        pressure.sizes[number] = nil
        pressure.pagedOut[number] = nil
        pressure.expectedFree[number] = nil
        pressure.excluded.remove(number)
        // This also applies to a victim that was no longer awaited: its memory has become free only now.
        if application.isBeingReclaimed { forgetChurn() }
        guard let victim = pressure.victim, victim.number == number else { return }
        if victim.awaitsRelease { pressure.victim?.isGone = true } else { concludeEnd() }
    }

    private mutating func concludeEnd() {
        pressure.victim = nil
        for source in pressure.gauges.keys { pressure.gauges[source]?.freed(step.now) }
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
    private mutating func leaveCritical(_ source: PressureSource) {
        pressure.kills[source] = nil
        pressure.exhausted.remove(source)
        // For other sources that are still critical, the event goes on.
        let critical = pressure.gauges.filter { $0.key != source && $0.value.level == .critical }.keys
        let others = Set(
            applications.values.filter { application in
                !source.covers(application) || critical.contains { $0.covers(application) }
            }.map(\.number))
        pressure.excluded.formIntersection(others)
        pressure.expectedFree = pressure.expectedFree.filter { others.contains($0.key) }
    }

    /// The overall level is the highest of all sources, but it keeps to `leastDwell`, too: sources change at different times.
    private mutating func concludeLevel() {
        let level = pressure.highest
        guard level != pressure.level, pressure.levelDue.map({ $0 <= step.now }) ?? true else { return }
        pressure.level = level
        pressure.levelChangedAt = step.now
        step.effects.append(.memoryPressureChanged(level))
    }

    /// Warns of each rise of the level that concerns an application, no matter which source it comes from.
    private mutating func warn(_ before: [PressureSource: PressureGauge]) {
        /// - Parameter user: nil: of every user.
        func rise(for user: UInt32?) -> MemoryPressure? {
            func level(_ gauges: [PressureSource: PressureGauge]) -> MemoryPressure {
                gauges.filter { $0.key.user == nil || $0.key.user == user }.map(\.value.level).max()
                    ?? .normal
            }
            let now = level(pressure.gauges)
            return now > level(before) ? now : nil
        }
        guard pressure.gauges.contains(where: { $0.value.level > before[$0.key]?.level ?? .normal }) else {
            return
        }
        // The pressure in one user's slice does not concern every user.
        if let level = rise(for: nil) {
            step.effects.append(.lowMemoryWarning(level == .critical ? .medium : .low))
        }
        let concerned = applications.values.compactMap { application in
            rise(for: application.user).map { (application.number, $0) }
        }
        for (number, level) in concerned.sorted(by: { $0.0 < $1.0 }) { warn(number, level) }
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
}

extension PressureSource {
    /// Whether an application is warned by it.
    func covers(_ application: Application) -> Bool { user.map { $0 == application.user } ?? true }
}

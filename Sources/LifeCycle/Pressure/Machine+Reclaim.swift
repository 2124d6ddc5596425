import AppStateContract

/// § 6: which applications are ended or paged out, and when.
extension Machine {
    /// Only the end of these applications frees memory that a source is short of.
    private func isMember(_ application: Application, of source: PressureSource) -> Bool {
        source.covers(application)
            && (!source.isPart || pressure.members[source]?.contains(application.number) == true)
    }

    /// Pages out a few applications at a time, because what is queued is paged out even if the pressure has ended.
    mutating func pageOut() {
        guard settings.mode == .enforce, pressure.beingPagedOut.count < Pressure.mostPageOuts else { return }
        let gauges = pressure.gauges.filter { $0.value.level > .normal }
        let withSwap = gauges.filter { ($0.value.sample?.swapTotal ?? 0) > 0 }.keys
        let without = gauges.filter { $0.value.wantsFilePages(settings.pressure) }.keys
        if withSwap.isEmpty, without.isEmpty { return }
        let suspended = applications.values.compactMap { application -> (Application, PageOutExtent)? in
            guard application.state == .suspended, !application.isTerminating,
                application.stop.enforcement != .continuing, !application.stop.drain.isUnderWay,
                pressure.pagedOut[application.number] != application.stateSince,
                !pressure.beingPagedOut.contains(application.number)
            else { return nil }
            if withSwap.contains(where: { isMember(application, of: $0) }) {
                let isWorthwhile = pressure.sizes[application.number, default: 0] > Pressure.leastPageOut
                return isWorthwhile ? (application, .everything) : nil
            }
            return without.contains { isMember(application, of: $0) } ? (application, .files) : nil
        }
        let order = suspended.sorted { ($0.0.stateSince, $0.0.number) < ($1.0.stateSince, $1.0.number) }
        if pressure.beingPagedOut.isEmpty, !order.isEmpty, pressure.pageOutsWaitedUntil == nil {
            pressure.pageOutsWaitedUntil = step.now + Pressure.pageOutWait
        }
        for (application, extent) in order.prefix(Pressure.mostPageOuts - pressure.beingPagedOut.count) {
            pressure.pagedOut[application.number] = application.stateSince
            pressure.beingPagedOut.insert(application.number)
            step.effects.append(.pageOut(application.number, extent))
        }
    }

    mutating func relieve() {
        guard pressure.victim == nil, pressure.measuredAt != nil else { return }
        // The expected memory has not been freed.
        if settings.mode == .enforce { pressure.expectedFree = [:] }
        // Where the machine is short, too, a user's slice does not decide whose application is ended.
        for source in pressure.gauges.keys.sorted() {
            let wantsRelief = pressure.gauges[source]?.wantsRelief(
                at: step.now, expectedFree: expectedFree(to: source),
                hasEnded: pressure.hasEnded(for: source),
                hasCheaper: pressure.awaitsPageOuts(step.now), settings.pressure)
            // A cgroup that has not been measured has no known members yet.
            guard wantsRelief == true, !source.isPart || pressure.members[source] != nil else { continue }
            let victim = victim(of: source)
            if victim.map({ $0.rank >= .background || $0.isUnsaved }) ?? true, source.user == nil {
                if pressure.exhausted.isEmpty { step.effects.append(.lowMemoryWarning(.critical)) }
                pressure.exhausted.insert(source)
            }
            guard let victim, let payer = applications[victim.number],
                end(victim, for: source)
            else { continue }
            // One stall ends one application, no matter how many sources have reported it.
            for other in pressure.gauges.keys where isMember(payer, of: other) {
                pressure.gauges[other]?.relieved()
            }
            return
        }
    }

    private func expectedFree(to source: PressureSource) -> UInt64 {
        pressure.expectedFree.reduce(0) { sum, promise in
            applications[promise.key].map { isMember($0, of: source) } == true ? sum + promise.value : sum
        }
    }

    private func victim(of source: PressureSource) -> ReclaimPolicy.Candidate? {
        var candidates: [ReclaimPolicy.Candidate] = []
        var usage: [UInt32: UInt64] = [:]
        for application in applications.values {
            let bytes = pressure.sizes[application.number] ?? 0
            usage[application.user, default: 0] += bytes
            guard isMember(application, of: source), !pressure.excluded.contains(application.number),
                pressure.expectedFree[application.number] == nil,
                let rank = reclaimRank(of: application)
            else { continue }
            candidates.append(
                ReclaimPolicy.Candidate(
                    number: application.number, user: application.user, rank: rank,
                    isUnsaved: application.hasUnsavedChanges,
                    age: step.now - min(step.now, application.stateSince), bytes: bytes,
                    progress: application.progress))
        }
        return ReclaimPolicy.first(of: candidates, usage: usage)
    }

    /// The sources for whose limit an end counts: the one that is short, and all others that are short of the same
    /// memory. Otherwise the slices of users would multiply the limit.
    private func sources(countingAnEndOf number: ApplicationNumber, for source: PressureSource)
        -> [PressureSource]
    {
        func isShortOfMachineMemory(_ gauge: PressureGauge?) -> Bool {
            gauge?.level == .critical && gauge?.sample?.isLimited == false
        }
        guard let victim = applications[number], isShortOfMachineMemory(pressure.gauges[source]) else {
            return [source]
        }
        return pressure.gauges.filter { isShortOfMachineMemory($0.value) && isMember(victim, of: $0.key) }
            .keys.sorted()
    }

    /// Whether it is ended or, in `observe`, would be. False if the source has reached its limit of ended
    /// applications.
    private mutating func end(_ victim: ReclaimPolicy.Candidate, for source: PressureSource) -> Bool {
        let number = victim.number
        guard settings.mode == .enforce else {
            pressure.expectedFree[number] = victim.bytes
            step.effects.append(.notice(number, .wouldReclaim(victim.bytes)))
            return true
        }
        let counting = sources(countingAnEndOf: number, for: source)
        let most = settings.pressure.killsPerEvent
        if let full = counting.first(where: { pressure.kills[$0, default: 0] >= most }) {
            if pressure.kills[full] == most {
                pressure.kills[full] = most + 1
                step.effects.append(.notice(number, .reclaimLimit(most)))
            }
            return false
        }
        for source in counting { pressure.kills[source, default: 0] += 1 }
        if victim.isUnsaved { step.effects.append(.notice(number, .losesUnsaved)) }
        let wait = settings.pressure.killWait
        switch victim.rank {
        case .held, .stopped:
            pressure.victim = Pressure.Victim(
                number: number, counting: counting, deadline: step.now.advanced(saturatingBy: wait),
                awaitsRelease: true)
            update(number, .policy) { $0.termination = .atOnce(.reclaimed) }
            step.effects.append(.reclaim(number))
        case .background, .continued:
            let grace = settings.pressure.terminateGrace
            pressure.victim = Pressure.Victim(
                number: number, counting: counting,
                deadline: step.now.advanced(saturatingBy: grace).advanced(saturatingBy: wait))
            step.effects.append(.willReclaim(number))
            announceEnd(of: number, .reclaimed, within: grace, .policy)
        }
        return true
    }
}

extension Machine {
    /// An application was ended because memory was short.
    ///
    /// - Returns: whether it will be started again.
    mutating func noteReclaimed(_ application: Application) -> Bool {
        guard application.rule?.relaunchReclaimed == true else { return false }
        let relaunch = Relaunch(id: application.id, user: application.user, session: application.session)
        guard let why = relaunches.add(relaunch, at: step.now) else { return true }
        step.effects.append(.notice(application.number, .notRelaunched(why)))
        return false
    }

    /// Starts one when memory is no longer short at all, because the started application must not be ended
    /// next.
    mutating func relaunchReclaimed() {
        guard isMemoryAmple, let relaunch = relaunches.popDue(at: step.now) else { return }
        step.effects.append(.relaunch(relaunch))
    }

    /// When the next one is started; nil: none waits, or memory is short.
    var nextRelaunch: Microseconds? { isMemoryAmple ? relaunches.nextDue : nil }

    private var isMemoryAmple: Bool { pressure.level == .normal && !pressure.isEventOpen }
}

import AppStateContract

extension Machine {
    /// Changes one application and brings it to rest: its state to its target, its holds to what
    /// policy wants, its stops to what the holds want. The only place that assigns a record.
    mutating func update(
        _ number: ApplicationNumber, _ reason: StateChangeReason, at now: Microseconds,
        _ effects: inout [Effect], _ change: (inout Application) -> Void
    ) {
        updateAnnouncing(number, reason, at: now, &effects) { application, _ in change(&application) }
    }

    /// The same, for a change that announces something itself.
    mutating func updateAnnouncing(
        _ number: ApplicationNumber, _ reason: StateChangeReason, at now: Microseconds,
        _ effects: inout [Effect], _ change: (inout Application, inout [Effect]) -> Void
    ) {
        guard let before = applications[number] else { return }
        var next = before
        change(&next, &effects)
        settle(&next, from: before, reason, at: now, &effects)
        applications[number] = next
        if before.tasks.count != next.tasks.count {
            keepText(next.textBytes - before.textBytes, of: next.user)
        }
        deadlines.set(next.nextDeadline, for: number)
        touched.insert(number)
        if before.isBeingReclaimed, !next.isTerminating { calledOff(number, at: now, &effects) }
    }

    /// What was seen of a stop, or came of an order. What tells nothing new changes nothing.
    mutating func stopChanged(
        _ number: ApplicationNumber, _ event: StopStatus.Event, at now: Microseconds,
        _ effects: inout [Effect]
    ) {
        guard let stop = applications[number]?.stop else { return }
        var next = stop
        let order = next.take(event, at: now)
        assert(order == nil, "\(event) orders nothing by itself")
        if next == stop { return }
        // What ordered it, or a stranger's signal.
        let step: StopStatus.Enforcement = next.isStanding ? .stopping : .continuing
        let reason = stop.enforcement == step ? stop.cause ?? .signal : .signal
        update(number, reason, at: now, &effects) { $0.stop = next }
    }

    private func settle(
        _ next: inout Application, from before: Application, _ reason: StateChangeReason,
        at now: Microseconds, _ effects: inout [Effect]
    ) {
        if before.isStopped != next.isStopped { next.timersStandStill(next.isStopped, at: now) }
        // A stop voids an acknowledgement that is awaited (§ 2), and so does the end of whose it would be.
        if next.isStopped || next.delegate != before.delegate || next.isTerminating { next.protection = nil }
        if next.isStopped { next.termination?.void() }
        if next.isReachable && !before.isReachable {
            for missed in next.takeBacklog() {
                effects.append(.announce(next.number, missed, to: .delegate))
            }
        }
        walk(&next, reason, at: now, &effects)
        decideReclaim(&next, &effects)
        decidePolicy(&next, at: now, &effects)
        enforce(&next, reason, at: now, &effects)

        let changed = next.observed(since: before)
        if !changed.isEmpty { effects.append(.changed(next.number, changed)) }
        next.remember(reason, since: before, at: now)
    }

    /// Walks the state to its target, announcing every edge with its delegate signals (§ 3):
    /// the will-signals before the edge, the did-signals after it.
    private func walk(
        _ next: inout Application, _ reason: StateChangeReason, at now: Microseconds,
        _ effects: inout [Effect]
    ) {
        let target = next.target
        while let state = next.state.step(toward: target) {
            let edge = Edge(next.state, state)
            if let will = edge.will { next.announce(will, &effects) }
            next.announce(.stateChanged, with: .edge(edge, reason), &effects)
            next.state = state
            next.stateSince = now
            if state == .background, target == .background {
                beginGrace(&next, after: edge, at: now, &effects)
            } else if let did = edge.did {
                next.announce(did.signal, with: did.payload, &effects)
            }
            if state != .background { next.grace = .none }
        }
    }

    /// It stays in the background: who is told so has its grace to put things away, one that comes out of a stop another.
    private func beginGrace(
        _ next: inout Application, after edge: Edge, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard edge.did != nil else { return next.startGrace(settings, serial: nil, at: now) }
        let serial = next.nextSerial()
        next.startGrace(settings, serial: next.isReachable && next.delegate != nil ? serial : nil, at: now)
        let deadline = (policySuspends(next) ? next.suspensionDeadline : nil) ?? 0
        next.announce(.didEnterBackground, with: .until(deadline, of: serial), &effects)
    }

    /// Takes and drops the hold of reason `policy` (§ 4), and what focus releases (§ 2).
    private func decidePolicy(_ next: inout Application, at now: Microseconds, _ effects: inout [Effect]) {
        if next.windowLevel > .hidden || next.suspension == .never {
            next.holds.removeAll(where: \.reason.isDecision)
        }
        if next.holds.contains(where: { $0.reason == .policy }), !allowsPolicy(next) {
            next.holds.removeAll { $0.reason == .policy }
        }
        if next.suspension != .automatic || next.isTerminating { next.grace = .none }
        if next.state != .background {
            if next.state != .suspended { next.wouldBeSuspended = false }
            return
        }
        if next.suspension == .automatic, next.grace == .none, !next.isTerminating, !next.isStopped {
            next.startGrace(settings, serial: nil, at: now)
        }
        guard next.grace == .over, next.protection == nil, next.exemptions.isEmpty, !hasLostReporter(next),
            !next.isStopped, !isRelinquished
        else {
            next.wouldBeSuspended = false
            return
        }
        switch settings.mode {
        case .enforce:
            next.wouldBeSuspended = false
            next.hold(.policy, "appstated")
        case .observe where !next.wouldBeSuspended:
            next.wouldBeSuspended = true
            effects.append(.notice(next.number, .wouldSuspend))
        case .observe:
            break
        }
    }

    /// Whether policy may go on holding it: its hold gives way to whatever would have forbidden it.
    private func allowsPolicy(_ application: Application) -> Bool {
        application.suspension == .automatic && application.exemptions.isEmpty && policySuspends(application)
    }

    /// Whether policy suspends at all where this application is: not in `Mode=observe`, and not in a session that has
    /// lost its lasting reporter.
    private func policySuspends(_ application: Application) -> Bool {
        settings.mode == .enforce && !hasLostReporter(application)
    }

    /// When what we hold breathes next; nil: it does not.
    private func nextBreath(at now: Microseconds) -> Microseconds? {
        guard let every = settings.drainEvery, every > 0, settings.drainFor > 0 else { return nil }
        return now.advanced(saturatingBy: every)
    }

    /// Brings the stop to what the holds want.
    private func enforce(
        _ next: inout Application, _ reason: StateChangeReason, at now: Microseconds,
        _ effects: inout [Effect]
    ) {
        if next.stop.isContested {
            next.stop.giveUpContest()
            next.holds = []
            next.giveWay(to: Notice.contested.description, grace: settings.backgroundGrace, at: now)
            effects.append(.notice(next.number, .contested))
            // The others of its extent stand, or are about to.
            effects.append(.resume(next.number, sparingMain: next.stop.isSignalledByOthers))
        }
        next.order(.wanted(!next.holds.isEmpty, reason), at: now, &effects)
        next.stop.take(.breathDue(nextBreath(at: now)), at: now)
    }
}

extension Application {
    /// A signal about this application: to its delegate if it can read it, to subscribers always.
    mutating func announce(
        _ signal: ApplicationSignal, with payload: Announcement.Payload = .none, _ effects: inout [Effect]
    ) {
        let announcement = Announcement(signal, payload)
        var audience: Audience = .subscribers
        if delegate != nil {
            if case .edge(let edge, _) = payload, edge.from == .suspended || edge.to == .suspended {
                // The application itself is never told of these (§ 3).
            } else if isReachable {
                audience.insert(.delegate)
                if case .edge(let edge, _) = payload { toldState = edge.to }
            } else {
                backlog.add(announcement)
            }
        }
        effects.append(.announce(number, announcement, to: audience))
    }

    /// What its delegate has missed, and the way from the state it knows to the present one.
    fileprivate mutating func takeBacklog() -> [Announcement] {
        guard delegate != nil else { return [] }
        let edges = toldState.walk(to: Self.asTold(state))
        toldState = Self.asTold(state)
        return backlog.take(along: edges)
    }

    /// A delegate is never told of `suspended`: what it knows is the background.
    static func asTold(_ state: LifeCycleState) -> LifeCycleState {
        state == .suspended ? .background : state
    }

    /// The screen was locked or unlocked: says so, and has policy wait for the answer.
    mutating func setProtected(
        _ locked: Bool, within span: Microseconds?, at now: Microseconds, _ effects: inout [Effect]
    ) {
        guard locked != isLocked else { return }
        isLocked = locked
        protection = nil
        guard locked else {
            announce(.protectedDataDidBecomeAvailable, &effects)
            return
        }
        var serial: UInt64 = 0
        if delegate != nil, isReachable, suspension == .automatic, !isTerminating, span != nil {
            serial = nextSerial()
            protection = Protection(serial: serial, limit: Countdown(span, from: now))
        }
        announce(
            .protectedDataWillBecomeUnavailable,
            with: .until(protection?.limit.deadline ?? 0, of: serial), &effects)
    }

    mutating func startGrace(_ settings: Settings, serial: UInt64?, at now: Microseconds) {
        guard suspension == .automatic, !isTerminating else {
            grace = .none
            return
        }
        grace = .running(serial: serial, Countdown(settings.backgroundGrace, from: now))
    }

    /// When it will be suspended at the latest if nothing changes; nil: it will not be.
    fileprivate var suspensionDeadline: Microseconds? {
        guard case .running(_, let countdown) = grace, let deadline = countdown.deadline,
            !isExemptForNow
        else { return nil }
        var latest = deadline
        for task in tasks {
            guard let end = task.limit.deadline else { return nil }
            latest = max(latest, end)
        }
        if let protection { latest = max(latest, protection.limit.deadline ?? latest) }
        return latest
    }

    mutating func timersStandStill(_ still: Bool, at now: Microseconds) {
        func turn(_ countdown: inout Countdown) {
            if still { countdown.pause(at: now) } else { countdown.resume(at: now) }
        }
        if var countdown = launch {
            turn(&countdown)
            launch = countdown
        }
        for index in tasks.indices { turn(&tasks[index].limit) }
    }

    fileprivate func observed(since before: Application) -> Set<ApplicationProperty> {
        var changed: Set<ApplicationProperty> = []
        if state != before.state || stateSince != before.stateSince {
            changed.formUnion([.state, .stateTimestamp])
        }
        if isFocused != before.isFocused { changed.insert(.focused) }
        if isMinimized != before.isMinimized { changed.insert(.minimized) }
        if suspension != before.suspension { changed.insert(.suspension) }
        if reclaimable != before.reclaimable { changed.insert(.reclaimable) }
        if backgroundModes != before.backgroundModes { changed.insert(.backgroundModes) }
        if allHolds != before.allHolds { changed.insert(.suspendHolds) }
        if tasks.map(\.id) != before.tasks.map(\.id) || tasks.map(\.deadline) != before.tasks.map(\.deadline)
        {
            changed.insert(.backgroundTasks)
        }
        return changed
    }

    fileprivate mutating func remember(
        _ reason: StateChangeReason, since before: Application, at now: Microseconds
    ) {
        guard
            state != before.state || stop.enforcement != before.stop.enforcement
                || isStopped != before.isStopped || windowLevel != before.windowLevel
                || allHolds != before.allHolds
        else { return }
        if trace.count == Self.traceLimit { trace.removeFirst() }
        trace.append(
            TraceEntry(
                time: now, reason: reason, from: before.state, to: state, level: windowLevel,
                isStopped: isStopped, enforcement: stop.enforcement, holds: allHolds.map(\.reason)))
    }
}

import AppStateContract

extension Machine {
    /// Changes one application and settles it: its state to its target, its holds to the decision of
    /// policy, and its stop to the requirement of the holds. This is the only place that assigns a record.
    mutating func update(
        _ number: ApplicationNumber, _ reason: StateChangeReason, _ change: (inout Application) -> Void
    ) {
        updateAnnouncing(number, reason) { application, _ in change(&application) }
    }

    /// The same, for a change that needs the time or announces something itself.
    mutating func updateAnnouncing(
        _ number: ApplicationNumber, _ reason: StateChangeReason,
        _ change: (inout Application, inout Step) -> Void
    ) {
        guard let before = applications[number] else { return }
        var next = before
        let told = step.effects.count
        change(&next, &step)
        settle(&next, from: before, reason)
        ping(&next, toldSince: told)
        applications[number] = next
        deadlines[number] = next.nextDeadline
        touched.insert(number)
        if before.isBeingReclaimed, !next.isTerminating { calledOff(number) }
    }

    /// Handles an observation of a stop, or the result of an order. If it shows nothing new, nothing changes.
    mutating func stopChanged(_ number: ApplicationNumber, _ event: StopStatus.Event) {
        guard let stop = applications[number]?.stop else { return }
        var next = stop
        let order = next.handle(event, at: step.now)
        if next == stop, order == nil { return }
        // The cause is the reason for our order, or else a signal from another process.
        let ordered: StopStatus.Enforcement = next.isStopped ? .stopping : .continuing
        let reason =
            if case .unobjected = event {
                next.cause ?? .policy
            } else {
                stop.enforcement == ordered ? stop.cause ?? .signal : .signal
            }
        updateAnnouncing(number, reason) {
            $0.stop = next
            if let order { $1.effects.append(order.effect(on: number)) }
        }
    }

    /// An application is needed. If only our own decisions suspend it, it runs (§ 5, "Thaw on demand"). An application
    /// that a person or another process has stopped stays stopped, unless it is asked to end: that lifts every hold but
    /// what another process has stopped, and gives it as much time as `Terminate` gives; if that is without a limit, as
    /// much as an application that answers.
    ///
    /// One that policy is about to suspend may be in the middle of an answer, and is not suspended yet.
    mutating func needed(_ number: ApplicationNumber, _ why: String, _ need: Need = .act) {
        guard let application = applications[number] else { return }
        let isHeld = !application.holds.isEmpty
        if isHeld, need != .end, !application.isHeldByDecision {
            if need == .read { foundUnread(number) }
            return
        }
        if need == .answer, application.isEnough(of: why, at: step.now) {
            return update(number, .demand) {
                $0.demand = why
                if isHeld { $0.demands.postponed = why }
            }
        }
        guard isHeld || application.grace != .none else { return }
        let toEnd = settings.terminateGrace ?? Answering.longest
        let isNew = application.demands.isNew(why, at: step.now)
        updateAnnouncing(number, .demand) {
            $0.need(why, need, at: $1.now)
            $0.holds = []
            let event: Grace.Event =
                switch need {
                case .answer: .answers(within: isNew ? Demands.firstAnswer : Demands.leastAnswer)
                case .act, .read: .again(atLeast: Grace.leastRetry)
                case .end: .again(atLeast: max(Grace.leastRetry, toEnd))
                }
            $0.grace(event, $1)
        }
        // A program that asks again and again does not fill the journal.
        if isHeld, isNew || need != .answer { step.effects.append(.notice(number, .needed(why))) }
    }

    /// Policy gives up its stop because of an objection.
    ///
    /// - Parameter isFound: a check has found the objection, and may find it again after each grace period,
    ///   because work can take hours.
    mutating func abandonStop(of number: ApplicationNumber, because why: String, isFound: Bool = false) {
        let isAnswering = applications[number]?.isAnsweringOnly(at: step.now) == true
        let isNew = !isFound || applications[number]?.objection != why && !isAnswering
        updateAnnouncing(number, .policy) { $0.abandonStop(because: why, &$1) }
        if isNew { step.effects.append(.notice(number, .objection(why))) }
    }

    private mutating func settle(
        _ next: inout Application, from before: Application, _ reason: StateChangeReason
    ) {
        next.paceLaunch(at: step.now)
        // A stop cancels a pending acknowledgement (§ 2), as does the end of the delegate or of the application.
        if next.isStopped || next.isTerminating { next.protection = nil }
        if next.delegate != before.delegate {
            next.protection = nil
            (next.answersPings, next.ping) = (false, nil)
            if before.delegate != nil {
                next.termination?.delegateReplaced(at: step.now)
                next.grace(.delegateLeft, step)
            }
        }
        next.endsLaunchByItself()
        if next.isReachable && !before.isReachable {
            for missed in next.popBacklog() {
                step.effects.append(.announce(next.number, missed, to: .delegate))
            }
        }
        if next.isFocused, !before.isFocused, !step.isReasserting {
            next.holds.removeAll { $0.reason == .toggle }
        }
        walk(&next, reason)
        next.paceTasks(at: step.now)
        // Nobody who sees the application needs to wait for an answer.
        if next.isLive, next.state != .background, !next.isEligible { next.answering = nil }
        if next.state == .inactive || next.state == .suspended && before.state != .suspended {
            next.answering?.isFast = false
        }
        // Items that arrived while they could not be delivered, because the application was being launched or
        // had no delegate.
        if next.acceptsDeliveries, next.delegate != nil {
            for delivery in next.backlog.popDeliveries() {
                step.effects.append(.announce(next.number, delivery, to: .delegate))
            }
        }
        decideReclaim(&next)
        decidePolicy(&next)
        enforce(&next, reason)
        // Nobody can answer while another program keeps it stopped.
        if next.isStopped, next.stop.enforcement != .continuing {
            next.termination?.cancelAcknowledgement(at: step.now)
        }

        if !next.isEligible || next.isStopped { next.isObjected = false }
        next.outlook = outlook(of: next)
        var changed = next.changedProperties(since: before)
        // Nobody was told of an earlier outlook by this daemon.
        if step.isReasserting { changed.subtract([.objections, .suspensionDeadline, .reclaimRank]) }
        if !changed.isEmpty { step.effects.append(.changed(next.number, changed)) }
        if next.state == .background, before.state == .background, next.isServing != before.isServing {
            step.effects.append(.resources(next.number))
        }
        if next.windowDigest != before.windowDigest
            || next.windowDigest != 0 && next.isVisible && next.isLive != before.isLive,
            !step.isReasserting
        {
            step.effects.append(.announce(next.number, Announcement(.windowsChanged), to: .subscribers))
        }
        next.remember(reason, since: before, at: step.now)
    }

    private func outlook(of application: Application) -> Application.Outlook {
        var objections = objections(to: application)
        if application.isObjected, let found = application.objection { objections.append(found) }
        return Application.Outlook(
            objections: objections, deadline: suspensionDeadline(of: application),
            rank: lastingRank(of: application))
    }

    /// Moves the state to its target edge by edge, and announces every edge with its delegate signals (§ 3):
    /// the will-signals before the edge, the did-signals after it.
    private mutating func walk(_ next: inout Application, _ reason: StateChangeReason) {
        let target = next.target
        while let state = next.state.step(toward: target) {
            let edge = Edge(next.state, state)
            if let will = edge.will { next.announce(will, &step) }
            next.announce(.stateChanged, with: .edge(edge, reason), &step)
            if state == .suspended { next.demands.ran = step.now - next.stateSince }
            next.state = state
            next.stateSince = step.now
            if state != .suspended { next.demands.postponed = nil }
            if state == .background, target == .background {
                beginGrace(&next, after: edge)
            } else if let did = edge.did {
                next.announce(did.signal, with: did.payload, &step)
            }
            if state != .background, !next.isDemanded { next.grace = .none }
        }
    }

    /// The application stays in the background. When it enters the background, it is notified and gets a
    /// grace period to save its data. After a stop it gets another one.
    private mutating func beginGrace(_ next: inout Application, after edge: Edge) {
        next.paceTasks(at: step.now)
        guard edge.did != nil else { return next.grace(.begins(), step) }
        let serial = next.nextSerial()
        let isAwaited = next.isReachable && next.delegate != nil
        next.grace(.begins(serial: isAwaited ? serial : nil), step)
        let deadline = suspensionDeadline(of: next) ?? .never
        next.announce(.didEnterBackground, with: .until(deadline, of: serial), &step)
    }

    /// Adds and removes the hold of reason `policy` (§ 4), and drops what focus releases (§ 2).
    private mutating func decidePolicy(_ next: inout Application) {
        if next.windowLevel > next.eligibleLevel || next.suspension == .never {
            next.holds.removeAll(where: \.reason.isDecision)
        }
        if next.holds.contains(where: { $0.reason == .policy }), !allowsPolicy(next) {
            next.holds.removeAll { $0.reason == .policy }
        }
        if next.suspension != .automatic || next.isTerminating { next.grace = .none }
        guard next.isEligible else {
            if next.state != .suspended {
                next.wouldBeSuspended = false
                next.grace = .none
            }
            return
        }
        if next.grace == .none || next.isDemanded, !next.isStopped {
            next.grace(.begins(), step)
        }
        guard next.grace == .over, next.protection == nil, next.objections.isEmpty, !hasLostReporter(next),
            !next.isStopped, !isRelinquished, !isShuttingDown
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
            step.effects.append(.notice(next.number, .wouldSuspend))
        case .observe:
            break
        }
    }

    /// Whether policy may keep holding it. Anything that would have prevented the hold also ends it.
    private func allowsPolicy(_ application: Application) -> Bool {
        application.suspension == .automatic && application.objections.isEmpty
            && application.protection == nil && settings.mode == .enforce && !isShuttingDown
            && !sessionKeys(of: application).contains { sessions[$0]?.reporting == .lost }
    }

    /// Whether policy suspends anything at all in the session of this application: not with `Mode=observe`,
    /// not in a session whose last reporter is gone, and not while the machine shuts down.
    func policySuspends(_ application: Application) -> Bool {
        settings.mode == .enforce && !isShuttingDown && !hasLostReporter(application)
    }

    /// Adjusts the stop to the requirement of the holds.
    private mutating func enforce(_ next: inout Application, _ reason: StateChangeReason) {
        if next.stop.isContested {
            next.stop.giveUpContest()
            next.holds = []
            next.abandonStop(because: Notice.contested.description, &step)
            step.effects.append(.notice(next.number, .contested))
        }
        next.order(.wanted(next.requirement, reason), &step)
        next.stop.handle(.drainDue(nextDrain(of: next)), at: step.now)
    }
}

extension Application {
    /// Sends a signal about this application: to its delegate if the delegate can read it, to subscribers always.
    mutating func announce(
        _ signal: ApplicationSignal, with payload: Announcement.Payload = .none, _ step: inout Step
    ) {
        let announcement = Announcement(signal, payload)
        var audience: Audience = .subscribers
        if delegate != nil {
            if case .edge(let edge, _) = payload, edge.from == .suspended || edge.to == .suspended {
                // The application itself is never notified of these (§ 3).
            } else if isReachable, !announcement.isDelivery || launch == nil {
                audience.insert(.delegate)
                if case .edge(let edge, _) = payload { announcedState = edge.to }
            } else {
                backlog.add(announcement)
            }
        } else if announcement.isDelivery, awaitsOwnRegistration {
            backlog.add(announcement)
        }
        step.effects.append(.announce(number, announcement, to: audience))
    }

    /// The events that its delegate has missed, and the path from the state that it knows to the present one.
    fileprivate mutating func popBacklog() -> [Announcement] {
        guard delegate != nil else { return [] }
        let edges = announcedState.walk(to: Self.asAnnounced(state))
        announcedState = Self.asAnnounced(state)
        return backlog.pop(along: edges, withDeliveries: launch == nil)
    }

    /// A delegate is never notified of `suspended`: to the delegate the state is still `background`.
    static func asAnnounced(_ state: LifeCycleState) -> LifeCycleState {
        state == .suspended ? .background : state
    }

    /// The screen was locked or unlocked: announces that, and makes policy wait for the acknowledgement.
    ///
    /// - Parameter isSuspended: whether policy suspends anything in its session. If not, nothing ends at the deadline.
    mutating func setProtected(_ locked: Bool, isSuspended: Bool, _ step: inout Step) {
        guard locked != isLocked else { return }
        isLocked = locked
        protection = nil
        guard locked else {
            announce(.protectedDataDidBecomeAvailable, &step)
            return
        }
        var serial: UInt64 = 0
        let span = ownGrace(step.settings)
        if delegate != nil, isReachable, suspension == .automatic, !isTerminating, span != nil {
            serial = nextSerial()
            protection = Protection(serial: serial, limit: Countdown(span, from: step.now))
        }
        let deadline = isSuspended && !hasObjection ? protection?.limit.deadline : nil
        announce(.protectedDataWillBecomeUnavailable, with: .until(deadline ?? .never, of: serial), &step)
    }

    /// CLOCK_MONOTONIC at which it will be suspended at the latest if nothing changes and if policy suspends anything at
    /// all in its session; nil: it will not be.
    var suspensionDeadline: Microseconds? {
        guard let deadline = grace.deadline, !hasObjection
        else { return nil }
        var latest = deadline
        for task in tasks {
            guard let end = task.limit.deadline else { return nil }
            latest = max(latest, end)
        }
        if let protection { latest = max(latest, protection.limit.deadline ?? latest) }
        return latest
    }

    /// The launch timeout pauses while it is stopped.
    fileprivate mutating func paceLaunch(at now: Microseconds) {
        let runs = !isStopped
        launch?.setRunning(runs, at: now)
    }

    /// The limits of its tasks advance only where policy suspends it and while it is not stopped: in the foreground no
    /// time is limited, except for a task that its user has cancelled. A task whose deadline is put off is warned again.
    fileprivate mutating func paceTasks(at now: Microseconds) {
        let runs = isEligible && !isStopped
        for index in tasks.indices {
            let counts = runs || tasks[index].isCancelled && !isStopped
            tasks[index].limit.setRunning(counts, at: now)
            if !counts { tasks[index].isWarned = false }
        }
    }

    fileprivate func changedProperties(since before: Application) -> Set<ApplicationProperty> {
        var changed: Set<ApplicationProperty> = []
        if state != before.state || stateSince != before.stateSince {
            changed.formUnion([.state, .stateTimestamp, .stateTimestampMonotonic])
        }
        if isLaunching != before.isLaunching { changed.insert(.launching) }
        if isTerminating != before.isTerminating { changed.insert(.terminating) }
        if isFocused != before.isFocused { changed.insert(.focused) }
        if isVisible != before.isVisible { changed.insert(.visible) }
        if isLocked != before.isLocked { changed.insert(.protectedDataAvailable) }
        if inhibitors != before.inhibitors { changed.insert(.inhibitors) }
        if outlook.objections != before.outlook.objections { changed.insert(.objections) }
        if outlook.deadline != before.outlook.deadline { changed.insert(.suspensionDeadline) }
        if outlook.rank != before.outlook.rank { changed.insert(.reclaimRank) }
        if isMinimized != before.isMinimized { changed.insert(.minimized) }
        if suspension != before.suspension { changed.insert(.suspension) }
        if reclaimable != before.reclaimable { changed.insert(.reclaimable) }
        if hasUnsavedChanges != before.hasUnsavedChanges { changed.insert(.unsavedChanges) }
        if unresponsive != before.unresponsive { changed.insert(.unresponsive) }
        if backgroundModes != before.backgroundModes { changed.insert(.backgroundModes) }
        if allHolds != before.allHolds { changed.insert(.suspendHolds) }
        if tasks.map(\.id) != before.tasks.map(\.id) || tasks.map(\.deadline) != before.tasks.map(\.deadline)
        {
            changed.insert(.backgroundTasks)
        }
        if tasks.compactMap(\.progress) != before.tasks.compactMap(\.progress) {
            changed.insert(.continuedTasks)
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

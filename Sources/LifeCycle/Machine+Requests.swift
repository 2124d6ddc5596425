import AppStateContract

/// Registration, delegates, tasks, suspension and the end.
extension Machine {
    mutating func register(_ registration: Registration) throws(Refusal) -> ApplicationNumber {
        if let launched = launched(takenOverBy: registration) { return try takeOver(launched, registration) }
        let former = try adopted(replacedBy: registration)
        let limit = settings.limits.applicationsPerUser
        let vacant = former?.user == registration.user ? 1 : 0
        guard countByUser[registration.user, default: 0] - vacant < limit else {
            throw .limitExceeded("applications of user \(registration.user)", limit: limit)
        }
        if let former { endReplaced(former) }
        let number = nextNumber()
        lastNumber = number.rawValue
        var application = Application(number, registration, at: step.now)
        application.apply(settings)
        if application.delegate != nil || registration.launched && application.isAssumedVisible {
            application.launch = Countdown(settings.launchTimeout, from: step.now)
        }
        applications[number] = application
        numbers[registration.process] = number
        countByUser[registration.user, default: 0] += 1
        step.effects.append(.added(number))

        var touched = reattribute(windowsBelow: registration.process)
        touched.remove(number)
        // An application whose windows pass to this one loses the focus before this one gets it.
        refresh(touched, .windows)
        if let application = applications[number] {
            let view = view(of: application)
            let stopped = registration.stopped && former?.stop.isOursAlone != true
            let reasons = (reportedReasons()[number] ?? []).sorted()
            updateAnnouncing(number, .launch) {
                if stopped {
                    $0.stop.handle(
                        .observed(StopReading(signal: .stopped), sender: former?.stop.foreignHolder),
                        at: $1.now)
                }
                $0.reportedReasons = reasons
                $0.announce(.willFinishLaunching, &$1)
                $0.announce(.didFinishLaunching, &$1)
                for delivery in registration.deliveries { $0.deliver(delivery, &$1) }
                // This is its initial value; it is notified of changes only.
                $0.show(view)
            }
        }
        if let wrapper = registration.wrapper { replaceWrapper(wrapper) }
        if !reportedObjections.isEmpty { refreshObjections() }
        if let former {
            dropIfUnused(former.session)
            forgetPressure(former)
        }
        return number
    }

    /// The next free number after the last one. After the greatest, numbers start again at 1: nobody
    /// remembers which application had that number four billion applications ago.
    private func nextNumber() -> ApplicationNumber {
        var number = lastNumber
        repeat {
            number = number == .max ? 1 : number + 1
        } while applications[ApplicationNumber(number)] != nil
        return ApplicationNumber(number)
    }

    mutating func unregister(_ number: ApplicationNumber) {
        guard let application = applications[number] else { return }
        releaseStop(application)
        announceEnd(of: application, .request)
        discard(application, .unregistered)
    }

    /// Tells the delegate the last edge. It may be another process than the one that has ended, or go on without the
    /// daemon. It may also be stopped: one more signal waits for it then.
    mutating func announceEnd(of application: Application, _ reason: StateChangeReason) {
        guard let delegate = application.delegate, application.announcedState != .notRunning else { return }
        let end = Announcement(.stateChanged, .edge(Edge(application.announcedState, .notRunning), reason))
        step.effects.append(.announceEnd(application.number, end, to: delegate))
    }

    mutating func exited(_ process: ProcessID, _ reason: ExitReason, _ status: Int32?) {
        var touched: Set<ApplicationNumber> = []
        let keys = windowsByProcess[process] ?? []
        dropObjections(of: process)
        for key in keys.sorted() {
            touched.formUnion(remove(key))
        }
        if let number = numbers[process], let application = applications[number] {
            touched.remove(number)
            if application.state != .notRunning {
                let edge = Edge(application.state, .notRunning)
                let end = Announcement(.stateChanged, .edge(edge, .exit))
                step.effects.append(.announce(number, end, to: .subscribers))
            }
            announceEnd(of: application, .exit)
            var ending = application.ending(reason, status: status)
            if ending.reason == .reclaimed { ending.isRelaunched = noteReclaimed(application) }
            step.effects.append(.ended(number, ending))
            discard(application, ending.reason)
        } else if keys.isEmpty {
            step.effects.append(.forget(process))
        }
        refresh(touched, .windows)
        if !objected.isEmpty { refreshObjections() }
    }

    /// Removes the record. Its windows pass to the applications that they belong to without it.
    private mutating func discard(_ application: Application, _ reason: ExitReason) {
        let number = application.number
        removeRecord(application)
        var touched = reattribute(windowsBelow: application.process)
        touched.remove(number)
        step.effects.append(.removed(number, reason))
        // The last of its windows may just have been removed, and the process with it.
        let forgotten = Effect.forget(application.process)
        if !isRelevant(with: application.process), !step.effects.contains(forgotten) {
            step.effects.append(forgotten)
        }
        refresh(touched, .windows)
        dropIfUnused(application.session)
        if !objected.isEmpty { refreshObjections() }
        forgetPressure(application)
    }

    /// Removes the record, and nothing else.
    mutating func removeRecord(_ application: Application) {
        let number = application.number
        touched.insert(number)
        applications[number] = nil
        numbers[application.process] = nil
        deadlines[number] = nil
        if let count = countByUser[application.user] {
            countByUser[application.user] = count > 1 ? count - 1 : nil
        }
    }

    // MARK: Connections

    mutating func becomeDelegate(_ number: ApplicationNumber, _ connection: ConnectionName) throws(Refusal) {
        try require(number)
        // It reads the current state, so missed events are not announced twice (§ 3).
        update(number, .request) {
            $0.delegate = connection
            $0.unresponsive = nil
            $0.backlog.forgetAllButDeliveries()
            $0.announcedState = Application.asAnnounced($0.state)
        }
    }

    mutating func disconnected(_ connection: ConnectionName) {
        for number in served(by: connection) {
            updateAnnouncing(number, .policy) { application, step in
                application.tasks.removeAll { $0.owner == connection }
                guard application.delegate == connection else { return }
                application.delegate = nil
                application.unresponsive = nil
                application.backlog.forgetAllButDeliveries()
                // No delegate is left to acknowledge, so SIGTERM is sent now.
                application.termination?.requestExit(at: step.now)
            }
        }
        reporterLeft(connection)
        dropObjections(by: connection)
    }

    mutating func acknowledge(
        _ number: ApplicationNumber, _ serial: UInt64, _ connection: ConnectionName
    ) throws(Refusal) {
        let application = try requireDelegate(number, connection)
        // The signal had nothing to acknowledge.
        if serial == 0 { return }
        guard serial <= application.lastSerial else {
            throw .invalidArgument("No signal of application \(number) carried the serial \(serial)")
        }
        // An acknowledgement that is late, or that a stop has cancelled, changes nothing and is not an error.
        updateAnnouncing(number, .policy) { application, step in
            if application.ping?.serial == serial { return application.answeredPing() }
            application.grace(.acknowledged(serial), step)
            application.unresponsive = nil
            if application.protection?.serial == serial { application.protection = nil }
            application.termination?.acknowledge(serial, at: step.now)
        }
        expire(number)
    }

    // MARK: Suspension

    /// Whatever follows it may begin a moment later, so there is a new grace period.
    mutating func uninhibit(_ number: ApplicationNumber, _ inhibitor: UInt64) {
        updateAnnouncing(number, .policy) {
            $0.inhibitors.removeAll { $0.id == inhibitor }
            if $0.inhibitors.isEmpty { $0.grace(.objectionEnded, $1) }
        }
    }

    /// Whoever requests this expects that it executes nothing from now on, so a drain ends.
    mutating func suspend(_ number: ApplicationNumber, _ reason: HoldReason, _ holder: String) {
        updateAnnouncing(number, .request) {
            $0.hold(reason, holder)
            $0.order(.drainEnded($0.requirement), &$1)
        }
    }

    mutating func resume(_ number: ApplicationNumber, _ holder: String) {
        guard let application = applications[number] else { return }
        let isKept = application.holds.contains { $0.reason == .request && $0.holder != holder }
        // A stop without a known cause ends, too, because a person has requested it.
        let isUnclaimed = application.holds.isEmpty && application.stop.isUnclaimed
        let continues = (application.stop.foreignHolder != nil || isUnclaimed) && !isKept
        if continues { step.effects.append(.continueForeign(number)) }
        // While we hold it, another process may have stopped it unseen.
        let lifts = continues || application.stop.enforcement != .none && !isKept
        updateAnnouncing(number, .request) {
            // A person's request overrides the daemon's own decisions, but not another user's request.
            $0.holds.removeAll { $0.reason != .request || $0.holder == holder }
            $0.order(.resumed(lifts: lifts), &$1)
            if $0.isEligible { $0.grace(.begins(), $1) }
        }
    }

    // MARK: The end

    mutating func terminate(_ number: ApplicationNumber, force: Bool) {
        guard let application = applications[number] else { return }
        if application.isTerminating && !force {
            // An end that was announced for lack of memory may still be called off.
            if application.isBeingReclaimed, application.killDeadline != nil {
                update(number, .request) { $0.termination?.request() }
            }
            // It has refused to end, or SIGTERM was lost with an earlier daemon: it is asked again.
            guard application.termination?.waitsForExit == true else { return }
        }
        if force {
            update(number, .request) { $0.termination = .atOnce(.forceQuit) }
            step.effects.append(.kill(number))
            return
        }
        announceEnd(of: number, .terminated, within: settings.terminateGrace, .request)
    }

    /// Sends WillTerminate, and sets what follows: SIGTERM at the acknowledgement or after half of `grace`, SIGKILL
    /// after it.
    mutating func announceEnd(
        of number: ApplicationNumber, _ verdict: ExitReason, within grace: Microseconds?,
        _ reason: StateChangeReason
    ) {
        updateAnnouncing(number, reason) {
            let now = $1.now
            let serial = $0.nextSerial()
            let killAt = grace.map { now.advanced(saturatingBy: $0) }
            let half = grace.map { now.advanced(saturatingBy: $0 / 2) }
            // A request to end lifts every hold, whoever's it is. The signal waits until the application is seen to
            // run.
            $0.holds.removeAll { verdict == .terminated || $0.reason.isDecision }
            $0.termination = .announced(
                verdict, serial: serial, exit: $0.delegate == nil ? now : half, kill: killAt)
            $0.announce(.willTerminate, with: .until(killAt ?? .never, of: serial), &$1)
        }
        expire(number)
    }

    // MARK: Time

    /// Carries out everything that is due for one application.
    mutating func expire(_ number: ApplicationNumber) {
        guard let application = applications[number] else { return }
        if application.launch?.isOver(at: step.now) == true,
            settings.launchTimeout == 0 || !missed(.launch, by: number)
        {
            update(number, .launchTimeout) { $0.launch = nil }
        }
        // In the background, where the launch may have ended, their limits advance.
        for task in applications[number]?.tasks ?? [] {
            guard let due = task.nextDeadline, due <= step.now else { continue }
            if !task.isWarned { updateAnnouncing(number, .policy) { $0.warn(task.id, &$1) } }
            if task.deadline <= step.now {
                update(number, .policy) { $0.tasks.removeAll { $0.id == task.id } }
            }
        }
        if case .running(let serial, let countdown, _)? = applications[number]?.grace,
            countdown.isOver(at: step.now), serial == nil || !missedBackground(number)
        {
            update(number, .policy) { $0.grace = .over }
        }
        if let application = applications[number], let due = application.postponedDemand, due <= step.now,
            let why = application.demands.postponed
        {
            needed(number, why, .answer)
        }
        if applications[number]?.protection?.limit.isOver(at: step.now) == true {
            update(number, .policy) { $0.protection = nil }
        }
        if let application = applications[number], application.isServing,
            !application.isAnswering(at: step.now)
        {
            update(number, .policy) { $0.answering?.isFast = false }
        }
        expirePing(of: number)
        expireDrain(of: number)
        while var termination = applications[number]?.termination,
            let order = termination.advance(at: step.now)
        {
            switch order {
            case .requestExit: step.effects.append(.requestExit(number))
            case .kill:
                missedEnd(termination.verdict, by: number)
                step.effects.append(.kill(number))
            }
            update(number, .request) { $0.termination = termination }
        }
    }
}

/// A process's own registration replaces an application that another program registered on its own
/// initiative, in one step (§ 2), and so does anybody's if it is only mirrored. In between, its windows, their focus and its objections never lack an
/// application, and never pass to another one.
extension Machine {
    /// The application that a registration replaces; nil: there is none. Throws if it must not be replaced.
    func adopted(replacedBy registration: Registration) throws(Refusal) -> Application? {
        guard let number = numbers[registration.process], let former = applications[number] else {
            return nil
        }
        // If a process registers under an id other than the one of its launch, this also begins a new
        // application.
        guard
            former.isMirrored && !registration.adopted
                || (former.isAdopted || former.awaitsOwnRegistration) && registration.byItself
        else {
            throw .alreadyRegistered(registration.process, number)
        }
        return former
    }

    /// It ends as if by `Unregister`. The facts about its process are kept for the successor.
    mutating func endReplaced(_ former: Application) {
        releaseStop(former)
        announceEnd(of: former, .request)
        removeRecord(former)
        step.effects.append(.removed(former.number, .unregistered))
    }

    /// Continues all of its processes that we have stopped.
    mutating func releaseStop(_ application: Application) {
        var last = application
        last.order(.wanted(.run, .request), &step)
    }
}

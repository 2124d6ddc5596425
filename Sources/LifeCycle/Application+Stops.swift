import AppStateContract

/// How stops, seen and ordered, and holds change a record. `Machine.update` settles what follows.
extension Application {
    mutating func hold(_ reason: HoldReason, _ holder: String) {
        let hold = Hold(reason: reason, holder: holder)
        if !holds.contains(hold) { holds.append(hold) }
    }

    /// A live task of the process is in the state T. `holder`: somebody else who was seen to stop it.
    mutating func sawStopped(by holder: String?, at now: Microseconds) {
        isStopped = true
        liftsForeignStop = false
        if breath == .closing, holder == nil { breath = .none }
        // A stop voids an acknowledgement that is awaited (§ 2); the grace went with the state.
        if termination?.isAtOnce == false { termination?.serial = Termination.voided }
        switch enforcement {
        case .stopping:
            enforcement = .stopped
            foreignStop = holder ?? foreignStop
        case .stopped:
            foreignStop = holder ?? foreignStop
        case .none, .continuing:
            // Ours was lifted already, or never there: somebody else stopped it.
            enforcement = .none
            foreignStop = holder ?? foreignStop ?? ""
        }
    }

    /// Why a stop or continuation that is seen now came about: what ordered it, or a stranger's signal.
    func cause(ofReaching step: Enforcement) -> StateChangeReason {
        enforcement == step ? enforcementCause : .signal
    }

    /// The process runs.
    mutating func sawContinued(at now: Microseconds) {
        // It breathes: that is no change of its state.
        if enforcement == .stopped, breath.isUnderWay { return }
        liftsForeignStop = false
        switch enforcement {
        case .continuing:
            enforcement = .none
        case .stopped, .stopping:
            guard isStopped else { break }
            // Somebody else continued it against a hold of ours, which is not theirs to lift:
            // it is stopped again, but not for ever (§ 2).
            // While a stop is under way it may be our own SIGCONT of before that is seen now.
            if enforcement == .stopped {
                if now - contest.since > Contest.window { contest = Contest(since: now, count: 0) }
                contest.count += 1
            }
            enforcement = .none
        case .none:
            break
        }
        isStopped = false
        foreignStop = nil
    }

    /// Something spoke against a stop that policy or pressure wanted: it is tried again after a grace.
    mutating func giveWay(to why: String, grace span: Microseconds?, at now: Microseconds) {
        objection = why
        holds.removeAll(where: \.reason.isDecision)
        // It was not carried out: a hold that stays has it ordered anew.
        if enforcement == .stopping || (breath == .closing && !holds.isEmpty) { enforcement = .none }
        guard state == .background, suspension == .automatic, !isTerminating else { return }
        grace = .running(serial: nil, Countdown(span.map { max($0, Self.leastRetry) }, from: now))
    }

    /// Between two attempts to suspend what something speaks against.
    private static let leastRetry: Microseconds = 1_000_000

    mutating func apply(_ settings: Settings) {
        let override = settings.applications[id.rawValue]
        suspension = override?.suspension ?? requestedSuspension
        reclaimable = override?.reclaimable ?? requestedReclaimable
        backgroundModes = requestedModes.filter { override?.backgroundModes.contains($0) == true }
    }

    mutating func warn(_ task: UInt64, _ effects: inout [Effect]) {
        guard let index = tasks.firstIndex(where: { $0.id == task }) else { return }
        tasks[index].isWarned = true
        announce(.backgroundTaskWillExpire(task: task, deadline: tasks[index].deadline), &effects)
    }
}

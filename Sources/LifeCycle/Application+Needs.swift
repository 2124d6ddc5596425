import AppStateContract

/// An application's grace period, and what it is needed for.
extension Application {
    mutating func grace(_ event: Grace.Event, _ step: Step) {
        if suspension == .automatic, !isTerminating {
            grace.handle(
                event, span: ownGrace(step.settings), isEligible: isEligible, at: step.now)
        } else {
            grace = .none
        }
    }

    /// The length of its grace period; nil: it does not end.
    func ownGrace(_ settings: Settings) -> Microseconds? {
        guard let own = rule?.backgroundGrace else { return settings.backgroundGrace }
        return own == .never ? nil : own
    }

    var isDemanded: Bool {
        if case .demanded = grace { true } else { false }
    }

    /// CLOCK_MONOTONIC of the end of the grace period; nil if none is running.
    public var graceDeadline: Microseconds? { grace.deadline }

    /// Remembers the demand and its time.
    mutating func need(_ why: String, _ need: Need, at now: Microseconds) {
        demand = why
        // It may be about to run because of an earlier demand.
        let resumes = isStopped && !isDemanded
        demands.add(why, resumes: resumes, at: now)
        var next = answering ?? Answering(since: now, isFast: true)
        if resumes {
            next = Answering(since: now, isFast: true, isAll: true)
        } else if now >= next.end {
            let isFast = now >= next.end.advanced(saturatingBy: Answering.longest)
            next = Answering(since: now, isFast: isFast)
        }
        if need != .answer { next.isAll = false }
        answering = next
    }

    /// It was resumed for nothing but an answer, and may still be working on it.
    public func isAnsweringOnly(at now: Microseconds) -> Bool {
        isAnswering(at: now) && answering?.isAll == true
    }

    /// Whether it may still be working on the request for which it was needed: opening a file may take longer
    /// than the grace period. While it computes, policy does not suspend it, but for 30 s at most, because
    /// some applications always compute.
    public func isAnswering(at now: Microseconds) -> Bool { answering.map { now < $0.end } ?? false }

    /// A program waits for it. It gets processor and disk time like a visible application, so that a
    /// foreground program does not have to wait for a slowed application.
    public var isServing: Bool { answering?.isFast == true }

    /// It does not run, or not longer, for this demand: it has done so often.
    func isEnough(of what: String, at now: Microseconds) -> Bool {
        if state == .suspended, isStopped {
            return now < stateSince.advanced(saturatingBy: demands.pause(before: what, at: now))
        }
        let served = answering?.since.advanced(saturatingBy: Demands.firstAnswer) ?? 0
        return demands.isWornOut(what, at: now) && now >= served
    }

    /// When it is resumed for a demand that was postponed; nil: there is none.
    var postponedDemand: Microseconds? {
        guard state == .suspended, isHeldByDecision, let what = demands.postponed else { return nil }
        return stateSince.advanced(saturatingBy: demands.pause(before: what, at: stateSince))
    }
}

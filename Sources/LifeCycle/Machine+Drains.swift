import AppStateContract

/// Drains: an application that stays suspended runs for a moment now and then (§ 5).
extension Machine {
    /// Due times are rounded up to this grid, so that the machine wakes once for all of them, ...
    static let drainGrid: Microseconds = 5_000_000
    /// ... and to full seconds where a period is shorter than a minute: there, 5 s more would be much.
    static let fineDrainGrid: Microseconds = 1_000_000

    /// Begins or ends the drain that is due. While a memory episode is open, none begins.
    mutating func expireDrain(of number: ApplicationNumber) {
        guard let application = applications[number], !application.holds.isEmpty else { return }
        switch application.stop.drain {
        case .due(let due) where due <= step.now:
            if application.isDrainedAlways, !pressure.isEventOpen { return beginDrain(of: number, due: due) }
            // It counts as done.
            updateAnnouncing(number, .policy) {
                $0.drainedAt = due
                $0.stop.handle(.drainDue(nil), at: $1.now)
            }
            if !pressure.isEventOpen { step.effects.append(.checkUnread(number)) }
        case .open(let end) where end <= step.now:
            endDrain(of: number)
        case .none, .due, .open, .closing:
            break
        }
    }

    /// Something waits to be read by an application that is drained now and then.
    mutating func foundUnread(_ number: ApplicationNumber) {
        guard let application = applications[number], case .due = application.stop.drain,
            !pressure.isEventOpen
        else { return }
        beginDrain(of: number, due: application.drainedAt)
    }

    private mutating func beginDrain(of number: ApplicationNumber, due: Microseconds) {
        guard let application = applications[number] else { return }
        let end = step.now.advanced(saturatingBy: drainSpan(of: application))
        updateAnnouncing(number, .policy) {
            $0.drainedAt = due
            $0.stop.handle(.drainBegan(until: end), at: $1.now)
        }
        step.effects.append(.resume(number))
    }

    private mutating func endDrain(of number: ApplicationNumber) {
        updateAnnouncing(number, .policy) { $0.order(.drainEnded($0.requirement), &$1) }
    }

    /// A memory episode begins.
    mutating func endDrains() {
        for number in applications.keys.sorted() {
            if case .open = applications[number]?.stop.drain { endDrain(of: number) }
        }
    }

    /// When an application that we hold is drained next; nil: never.
    func nextDrain(of application: Application) -> Microseconds? {
        // A user's rule must not keep the daemon busy.
        let own = application.rule?.drainEvery.map { max($0, Grace.leastRetry) }
        guard let every = own ?? settings.drainEvery, every > 0, every != .never,
            drainSpan(of: application) > 0
        else { return nil }
        let due = max(application.stateSince, application.drainedAt).advanced(saturatingBy: every)
        // It is past if the period has just become shorter, or if another daemon has held the application until now.
        let next = due > step.now ? due : step.now.advanced(saturatingBy: every)
        return next.rounded(upTo: every < 60_000_000 ? Self.fineDrainGrid : Self.drainGrid)
    }

    private func drainSpan(of application: Application) -> Microseconds {
        application.rule?.drainFor ?? settings.drainFor
    }
}

extension Application {
    /// It is drained whether or not something waits to be read by it. A program that knows nothing of its suspension has
    /// timers, and connections over the network; a program that has registered itself is ready to wait.
    var isDrainedAlways: Bool { isHeldByDecision && registrant != .itself }

    /// It runs although it is suspended, until it is stopped again.
    public var isBeingDrained: Bool { stop.drain.isUnderWay }
}

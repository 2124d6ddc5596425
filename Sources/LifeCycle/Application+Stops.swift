import AppStateContract

/// How observed stops, ordered stops and holds change a record. `Machine.update` settles what follows.
extension Application {
    mutating func hold(_ reason: HoldReason, _ holder: String) {
        let hold = Hold(reason: reason, holder: holder)
        if !holds.contains(hold) { holds.append(hold) }
    }

    /// The fact that results from a check of its main process; nil if the check shows nothing new. `sender`:
    /// as in `Fact.looked`.
    public func news(_ standing: Standing, sender: String? = nil) -> Fact? {
        stop.isNews(standing, sender: sender) ? .looked(number, standing, sender: sender) : nil
    }

    /// The stop that its holds require.
    var wish: StopStatus.Wish {
        if holds.isEmpty { return .run }
        return holds.allSatisfy(\.reason.isDecision) ? .stopUnlessObjected : .stop
    }

    /// It is suspended, or about to be, and no client has requested that.
    public var isHeldByDecision: Bool { wish == .stopUnlessObjected }

    /// Applies an event to its stop, and adds the order that follows from it.
    mutating func order(_ event: StopStatus.Event, _ step: inout Step) {
        switch stop.take(event, at: step.now) {
        case .check(let stands)?: step.effects.append(.check(number, stands: stands))
        case .stop?: step.effects.append(.stop(number))
        case .resume?: step.effects.append(.resume(number))
        case nil: break
        }
    }

    /// Something prevented a stop by policy. Policy tries again after a grace period.
    mutating func giveWay(to why: String, _ settings: Settings, _ step: inout Step) {
        objection = why
        isObjected = true
        holds.removeAll(where: \.reason.isDecision)
        if holds.isEmpty { order(.gaveWay, &step) }
        grace(.again(atLeast: Grace.leastRetry, isResting: isResting), settings, at: step.now)
    }

    mutating func apply(_ settings: Settings) {
        let override = settings.applications[id.rawValue]
        suspension = override?.suspension ?? rule?.suspension ?? requestedSuspension
        reclaimable = override?.reclaimable ?? rule?.reclaimable ?? requestedReclaimable
        backgroundModes = requestedModes.filter { override?.backgroundModes.contains($0) == true }
    }

    mutating func warn(_ task: UInt64, _ step: inout Step) {
        guard let index = tasks.firstIndex(where: { $0.id == task }) else { return }
        tasks[index].isWarned = true
        announce(.backgroundTaskWillExpire, with: .until(tasks[index].deadline, of: task), &step)
    }
}

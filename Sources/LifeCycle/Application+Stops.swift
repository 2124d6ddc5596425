import AppStateContract

/// How observed stops, ordered stops and holds change a record. `Machine.update` settles what follows.
extension Application {
    mutating func hold(_ reason: HoldReason, _ holder: String) {
        let hold = Hold(reason: reason, holder: holder)
        if !holds.contains(hold) { holds.append(hold) }
    }

    /// The stop that its holds require.
    var requirement: StopStatus.Requirement {
        if holds.isEmpty { return .run }
        return holds.allSatisfy(\.reason.isDecision) ? .stopUnlessObjected : .stop
    }

    /// It is suspended, or about to be, and no client has requested that.
    public var isHeldByDecision: Bool { requirement == .stopUnlessObjected }

    /// Applies an event to its stop, and adds the order that follows from it.
    mutating func order(_ event: StopStatus.Event, _ step: inout Step) {
        if let effect = stop.handle(event, at: step.now)?.effect(on: number) { step.effects.append(effect) }
    }

    /// Something prevented a stop by policy. Policy tries again after a grace period.
    mutating func abandonStop(because why: String, _ step: inout Step) {
        objection = why
        isObjected = true
        holds.removeAll(where: \.reason.isDecision)
        if holds.isEmpty { order(.stopAbandoned, &step) }
        let isBrief = isAnsweringOnly(at: step.now)
        grace(isBrief ? .answers(within: Demands.leastAnswer) : .again(atLeast: Grace.leastRetry), step)
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

extension StopStatus.Order {
    func effect(on number: ApplicationNumber) -> Effect {
        switch self {
        case .check(let isStopped): .check(number, isStopped: isStopped)
        case .stop: .stop(number)
        case .resume: .resume(number)
        }
    }
}

extension Application {
    /// - Parameter reason: the reason that the end of its process indicates. An earlier decision takes
    ///   precedence.
    func ending(_ reason: ExitReason, status: Int32?) -> Ending {
        let reason = termination?.verdict ?? reason
        // A user who force-quits it wants a fresh start. State that made it crash or hang would make it crash
        // or hang again.
        let isSpoilt = [.crashed, .unresponsive].contains(reason) && isLaunching && isRestored
        return Ending(
            reason: reason, state: state, status: status,
            dropsSavedState: reason == .forceQuit || isSpoilt, losesChanges: hasUnsavedChanges)
    }
}

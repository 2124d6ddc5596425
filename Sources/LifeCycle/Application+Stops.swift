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
    mutating func giveWay(to why: String, grace span: Microseconds?, _ step: inout Step) {
        objection = why
        isObjected = true
        holds.removeAll(where: \.reason.isDecision)
        if holds.isEmpty { order(.gaveWay, &step) }
        waitAgain(for: span, &step)
    }

    /// Remembers the demand and its time. While the application runs because of one demand, further demands
    /// do not extend the time that it has to answer. Otherwise a client that calls it again and again could
    /// keep it from being suspended.
    mutating func need(_ why: String, at now: Microseconds) {
        demand = why
        serve(at: now)
        if isStopped || !isAnswering(at: now) { neededAt = now }
    }

    private mutating func serve(at now: Microseconds) {
        switch service {
        case .until where !isStopped: break
        case .over(let last) where !isStopped && now < last.advanced(saturatingBy: Self.mostAnswering):
            service = .over(lastNeed: now)
        case .none, .until, .over: service = .until(now.advanced(saturatingBy: Self.mostAnswering))
        }
    }

    /// Policy tries again after a grace period.
    mutating func waitAgain(
        for span: Microseconds?, atLeast least: Microseconds = leastRetry, _ step: inout Step
    ) {
        guard isResting, suspension == .automatic, !isTerminating else { return }
        raiseFloor(least, at: step.now)
        // An acknowledgement that is still awaited ends the new grace period, too.
        var serial: UInt64?
        if case .running(let awaited, _) = grace { serial = awaited }
        grace = .running(serial: serial, countdown(span, from: step.now))
    }

    /// Whatever its rule says, its grace period lasts for so long from now on.
    mutating func raiseFloor(_ least: Microseconds, at now: Microseconds) {
        graceFloor = max(graceFloor, now.advanced(saturatingBy: least))
        leastGrace = 0
    }

    /// The countdown of a grace period that begins now.
    func countdown(
        _ common: Microseconds?, atLeast least: Microseconds = 0, from now: Microseconds
    ) -> Countdown {
        let left = graceFloor - min(now, graceFloor)
        return Countdown(ownGrace(common).map { max($0, least, left) }, from: now)
    }

    /// The shortest grace period after something prevented a suspension, and while the application is needed.
    static let leastRetry: Microseconds = 1_000_000

    /// Its grace period; `common` is the default of all applications. nil: it does not end.
    func ownGrace(_ common: Microseconds?) -> Microseconds? {
        guard let own = rule?.backgroundGrace else { return common }
        return own == .never ? nil : own
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

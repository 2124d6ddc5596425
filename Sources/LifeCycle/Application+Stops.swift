import AppStateContract

/// How stops, seen and ordered, and holds change a record. `Machine.update` settles what follows.
extension Application {
    mutating func hold(_ reason: HoldReason, _ holder: String) {
        let hold = Hold(reason: reason, holder: holder)
        if !holds.contains(hold) { holds.append(hold) }
    }

    /// The fact of a look at its main process; nil where it tells nothing new. `sender`: see there.
    public func news(_ standing: Standing, sender: String? = nil) -> Fact? {
        stop.isNews(standing, sender: sender) ? .looked(number, standing, sender: sender) : nil
    }

    /// What its holds want.
    var wish: StopStatus.Wish {
        if holds.isEmpty { return .run }
        return holds.allSatisfy(\.reason.isDecision) ? .stopUnlessObjected : .stop
    }

    /// It is suspended, or about to be, and nobody has asked for that.
    public var isHeldByDecision: Bool { wish == .stopUnlessObjected }

    /// Takes note of what changes its stop, with the order that comes of it.
    mutating func order(_ event: StopStatus.Event, _ step: inout Step) {
        switch stop.take(event, at: step.now) {
        case .check(let stands)?: step.effects.append(.check(number, stands: stands))
        case .stop?: step.effects.append(.stop(number))
        case .resume(let sparingMain)?: step.effects.append(.resume(number, sparingMain: sparingMain))
        case .letGo(let sparingMain)?: step.effects.append(.letGo(number, sparingMain: sparingMain))
        case nil: break
        }
    }

    /// Something spoke against a stop that policy or pressure wanted: it is tried again after a grace.
    mutating func giveWay(to why: String, grace span: Microseconds?, _ step: inout Step) {
        objection = why
        holds.removeAll(where: \.reason.isDecision)
        if holds.isEmpty { order(.gaveWay, &step) }
        waitAgain(for: span, &step)
    }

    /// Policy tries it again after a grace.
    mutating func waitAgain(for span: Microseconds?, _ step: inout Step) {
        guard isResting, suspension == .automatic, !isTerminating else { return }
        isNeeded = false
        // An acknowledgement that is still awaited ends this one, too.
        var serial: UInt64?
        if case .running(let awaited, _) = grace { serial = awaited }
        grace = .running(
            serial: serial, Countdown(ownGrace(span).map { max($0, Self.leastRetry) }, from: step.now))
    }

    /// Between two attempts to suspend what something speaks against, and while somebody needs it.
    static let leastRetry: Microseconds = 1_000_000

    /// How long its grace is, where that of all others is `common`; nil: it does not end.
    func ownGrace(_ common: Microseconds?) -> Microseconds? {
        guard let own = rule?.backgroundGrace else { return common }
        return own == .max ? nil : own
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

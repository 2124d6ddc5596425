import AppStateContract

/// Which programs have stopped an application, and the progress of our own stop or continuation (§ 2,
/// "Stops").
///
/// Everything that changes it is an `Event`, and `next` is the only table of transitions. This type does not
/// know whether we want it stopped: the holds say so (`.wanted`).
public struct StopStatus: Equatable, Sendable {
    /// The progress of our own stop.
    public enum Enforcement: String, Hashable, Sendable {
        case none
        /// SIGSTOP was sent, but the stop has not been observed yet.
        case stopping
        case stopped
        /// SIGCONT was sent, but the process has not been observed running yet.
        case continuing
    }

    /// The drains of an application that we hold for long. They do not change its state (§ 5).
    enum Drain: Hashable, Sendable {
        case none
        case due(at: Microseconds)
        case open(until: Microseconds)
        /// The stop that ends the drain is under way.
        case closing(Progress)

        var isUnderWay: Bool {
            switch self {
            case .open, .closing: true
            case .none, .due: false
            }
        }
    }

    /// The requirement of the holds.
    enum Requirement: Hashable, Sendable {
        case run
        /// Only policy wants it stopped, so any objection to the stop counts (§ 2).
        case stopUnlessObjected
        case stop
    }

    /// The remaining steps until our stop is complete.
    enum Progress: Hashable, Sendable {
        /// A check for objections to the stop is in progress. Nothing has been stopped yet.
        case checkingBefore
        /// The stop was ordered. `isChecked`: once it is stopped, it is checked once more.
        case ordered(isChecked: Bool)
        /// The whole application is stopped, so an objection that is found now existed before.
        case checkingAfter

        /// The next step, and what must be done; nil: the stop is complete.
        func next(_ event: Event) -> (Progress?, Order?) {
            switch (self, event) {
            case (.ordered(isChecked: false), .stopCompleted): (nil, nil)
            case (.ordered(isChecked: true), .stopCompleted): (.checkingAfter, .check(isStopped: true))
            case (.checkingBefore, .unobjected): (.ordered(isChecked: true), .stop)
            case (.checkingAfter, .unobjected(isStopped: true)): (nil, nil)
            // Another process has continued it meanwhile.
            case (.checkingAfter, .unobjected(isStopped: false)): (.ordered(isChecked: true), .stop)
            // A person has requested it, so checks do not matter.
            case (.checkingBefore, .wanted(.stop, _)), (.checkingAfter, .wanted(.stop, _)):
                (.ordered(isChecked: false), .stop)
            case (.ordered, .wanted(let requirement, _)) where requirement != .run:
                (.ordered(isChecked: requirement == .stopUnlessObjected), nil)
            default: (self, nil)
            }
        }
    }

    /// The order of ours that is in force.
    enum Own: Hashable, Sendable {
        /// None is, and we hold none of its processes.
        case none
        /// Our stop is in progress. `lifts`: the end of another process's stop was ordered.
        case stopping(Progress, lifts: Bool, StateChangeReason)
        /// It is stopped, and we hold it.
        case held(Drain, StateChangeReason)
        /// Our continuation was ordered. `lifts`: it also ends every stop by another process, because a person has
        /// requested that.
        case continuing(lifts: Bool, StateChangeReason)
    }

    /// What we hold is stopped. What we continue, or what is lifted, no other program is known to want stopped.
    struct Phase: Hashable, Sendable {
        /// The others that want it stopped; nil: it was seen running.
        var seen: ForeignStop?
        var own = Own.none

        /// The progress of a stop that is under way.
        var progress: Progress? {
            switch own {
            case .stopping(let progress, _, _), .held(.closing(let progress), _): progress
            case .none, .held, .continuing: nil
            }
        }

        /// It is being checked whether there is anything against a stop, and nothing else has been done.
        var isOnlyChecking: Bool {
            if case .stopping(.checkingBefore, lifts: false, _) = own { seen == nil } else { false }
        }
    }

    enum Event: Hashable, Sendable {
        /// It was checked. `sender`: another process that was seen to stop it.
        case observed(StopReading, sender: String?)
        /// Our order has been carried out: the whole application is stopped.
        case stopCompleted
        /// Our order has been carried out: the whole application was released. The reading is of its
        /// main process.
        case resumeCompleted(StopReading)
        /// The holds require this, for this reason.
        case wanted(Requirement, StateChangeReason)
        /// There is no objection to the stop. `isStopped`: whether it was still stopped after the check.
        case unobjected(isStopped: Bool)
        /// A caller with the necessary permission has requested that it run: stops by others no longer count,
        /// and `lifts` ends them.
        case resumed(lifts: Bool)
        /// Our holds were given up: our stop was not carried out, or did not last.
        case stopAbandoned
        /// An application that we hold is drained at this time, unless it already has a time; nil: it is not
        /// drained.
        case drainDue(Microseconds?)
        case drainBegan(until: Microseconds)
        case drainEnded(Requirement)
        /// The daemon before us was killed, and it is not known whether its orders were carried out. `isSignalled`:
        /// some SIGSTOP was not taken back meanwhile.
        case restored(isHeld: Bool, isSignalled: Bool)
    }

    /// What must be done.
    enum Order: Hashable, Sendable {
        case check(isStopped: Bool)
        case stop
        /// Our stop ends. What another process has stopped stays stopped, unless the status `isLifting`.
        case resume
    }

    private(set) var phase: Phase
    private var contest = Contest()

    init(phase: Phase = Phase()) { self.phase = phase }

    /// How often another process has recently continued it despite our holds.
    private struct Contest: Equatable, Sendable {
        var since: Microseconds = 0
        var count = 0
        /// How often it was continued during consecutive checks, no matter how long the checks took.
        var duringChecks = 0
    }

    /// If it is continued more often than this within `contestWindow`, we give up.
    static let contestLimit = 5
    static let contestWindow: Microseconds = 1_000_000

    // MARK: What is known

    /// It executes nothing, except during a drain.
    public var isStopped: Bool { phase.seen != nil }

    /// The other program that wants it stopped, as far as is known; nil: no other program does.
    public var foreignHolder: String? { phase.seen?.holder }

    /// Another process has stopped it by signal, so we must not continue it.
    public var isSignalledByOther: Bool { phase.seen?.sender != nil }

    /// While only a check for objections to a stop is in progress, there is no stop.
    public var enforcement: Enforcement {
        switch phase.own {
        case .none: .none
        case .stopping: phase.isOnlyChecking ? .none : .stopping
        case .held: .stopped
        case .continuing: .continuing
        }
    }

    /// It is stopped, and no program is known to want that.
    var isUnclaimed: Bool { phase == Phase(seen: .absent) }

    /// A check for objections to our stop is in progress.
    var isBeingChecked: Bool { phase.progress == .checkingBefore || phase.progress == .checkingAfter }

    /// If it is found stopped, only we have stopped it.
    var isOursAlone: Bool { [.stopping, .stopped].contains(enforcement) && foreignHolder == nil }

    /// The reason for our present or completed stop or continuation; nil: there is none.
    var cause: StateChangeReason? { phase.isOnlyChecking ? nil : phase.cause }

    /// A caller with the necessary permission has requested that it run: every stop by another process is being
    /// ended, but that has not been observed yet.
    public var isLifting: Bool { phase.lifts }

    var drain: Drain {
        if case .held(let drain, _) = phase.own { drain } else { .none }
    }

    /// When a drain must begin or end.
    var drainDeadline: Microseconds? {
        switch drain {
        case .due(let deadline), .open(let deadline): deadline
        case .none, .closing: nil
        }
    }

    /// Another process continues it despite our holds as often as we stop it.
    var isContested: Bool { max(contest.count, contest.duringChecks) > Self.contestLimit }

    // MARK: What happens

    /// Processes an event, and returns what must be done.
    @discardableResult
    mutating func handle(_ event: Event, at now: Microseconds) -> Order? {
        let before = phase
        let (next, order) = Self.next(phase, event)
        phase = next
        // It runs although we hold it: it is stopped again, but not forever (§ 2).
        if case .observed = event, case .held = before.own, next == Phase() {
            if now - contest.since > Self.contestWindow { (contest.since, contest.count) = (now, 0) }
            contest.count += 1
        }
        if case .unobjected(let isStopped) = event, before.progress == .checkingAfter {
            contest.duringChecks = isStopped ? 0 : contest.duringChecks + 1
        }
        return order
    }

    /// Another process was seen to continue it faster than we could stop it.
    mutating func contend() { contest.count = Self.contestLimit + 1 }

    mutating func giveUpContest() { contest = Contest() }

    /// The next phase, and what must be done.
    static func next(_ phase: Phase, _ event: Event) -> (Phase, Order?) {
        var next = phase
        let order = next.handle(event)
        return (next, order)
    }
}

/// The table.
extension StopStatus.Phase {
    fileprivate mutating func handle(_ event: StopStatus.Event) -> StopStatus.Order? {
        switch (event, own) {
        case (.observed(let reading, let sender), _):
            observe(reading, sender)
        case (.resumeCompleted(let reading), .continuing):
            if reading.isUndecided(before: seen != nil) { break }
            // All our stops were released, so a stop that is left is another program's.
            let foreign = reading.foreignStop(.absent, nil).orUnknown
            self = Self(seen: reading.isStopped(before: true) ? foreign : nil)
        case (.resumeCompleted(let reading), _):
            observe(reading, nil)

        case (.stopCompleted, .none):
            seen = (seen ?? .absent).orUnknown
        case (.stopCompleted, _), (.unobjected, _):
            return advance(event)

        case (.wanted(.run, let cause), .stopping), (.wanted(.run, let cause), .held):
            let leavesIt = isOnlyChecking || isForeignStop
            own = leavesIt ? .none : .continuing(lifts: lifts, cause)
            // An earlier daemon may have stopped some of it.
            return .resume
        case (.wanted(.run, _), .none), (.wanted(.run, _), .continuing):
            break
        case (.wanted(let requirement, let cause), .none), (.wanted(let requirement, let cause), .continuing):
            let (progress, order) = begin(requirement)
            own = .stopping(progress, lifts: lifts, cause)
            return order
        case (.wanted, .stopping), (.wanted, .held):
            return advance(event)

        case (.resumed(lifts: true), .none) where seen == nil:
            break
        case (.resumed(lifts: true), _):
            let isOurs = if case .continuing = own { false } else { own != .none }
            own = .continuing(lifts: true, .request)
            forgetForeign()
            return isOurs ? .resume : nil
        case (.resumed(lifts: false), _):
            forgetForeign()

        // Some of its processes may be stopped: by the stop that had begun, or by an earlier daemon.
        case (.stopAbandoned, .none), (.stopAbandoned, .stopping):
            own = .none
            return .resume
        case (.stopAbandoned, .held), (.stopAbandoned, .continuing):
            break

        case (.drainDue(let time), .held(let drain, let cause)) where !drain.isUnderWay:
            // We must not lift another process's stop, not even for a moment.
            guard !isForeignStop, let time else {
                own = .held(.none, cause)
                break
            }
            if drain == .none { own = .held(.due(at: time), cause) }
        case (.drainBegan(let end), .held(.due, let cause)):
            own = .held(.open(until: end), cause)
        case (.drainEnded(let requirement), .held(.open, let cause)):
            let (progress, order) = begin(requirement)
            own = .held(.closing(progress), cause)
            return order
        case (.drainDue, _), (.drainBegan, _), (.drainEnded, _):
            break

        // The holds cause the stop to be ordered again, or to be undone as if it had been carried out.
        case (.restored(isHeld: false, _), .none):
            break
        case (.restored(let isHeld, let isSignalled), _):
            own = isHeld ? .none : .stopping(.ordered(isChecked: false), lifts: lifts, cause ?? .signal)
            // Once we order our own stop, we can no longer observe whether another program has lifted its stop.
            if !isSignalled { seen?.sender = nil }
        }
        return nil
    }

    private mutating func observe(_ reading: StopReading, _ sender: String?) {
        if reading.isUndecided(before: seen != nil) { return }
        guard reading.isStopped(before: seen != nil) else {
            switch own {
            // This is not a change of its state, but shows that no other process holds it stopped.
            case .held(let drain, _) where drain.isUnderWay: seen = .absent
            case .stopping(let progress, _, let cause):
                self = Self(own: .stopping(progress, lifts: false, cause))
            case .none, .held, .continuing: self = Self()
            }
            return
        }
        let foreign = reading.foreignStop(seen ?? .absent, sender)
        switch own {
        case .none:
            seen = foreign.orUnknown
        case .held:
            seen = foreign
        case .stopping(let progress, _, let cause):
            // The stop may be our own doing.
            guard foreign != .absent else {
                forgetForeign()
                break
            }
            self = Self(seen: foreign, own: .stopping(progress, lifts: false, cause))
        case .continuing:
            // It may be stopped because we have not released it yet.
            if sender != nil, reading.signal != .none { self = Self(seen: foreign) }
        }
    }

    /// Does the next step of a stop that is under way.
    private mutating func advance(_ event: StopStatus.Event) -> StopStatus.Order? {
        guard let (next, order) = progress?.next(event) else { return nil }
        switch own {
        case .stopping(_, let lifts, let cause):
            own = next.map { .stopping($0, lifts: lifts, cause) } ?? .held(.none, cause)
            if next == nil { seen = seen ?? .absent }
        case .held(_, let cause):
            own = .held(next.map { .closing($0) } ?? .none, cause)
        case .none, .continuing:
            break
        }
        return order
    }

    private var isForeignStop: Bool { seen.map { $0 != .absent } ?? false }

    /// No other program wants it stopped any more.
    private mutating func forgetForeign() {
        if seen != nil { seen = .absent }
    }

    private func begin(_ requirement: StopStatus.Requirement) -> (StopStatus.Progress, StopStatus.Order) {
        requirement == .stopUnlessObjected
            ? (.checkingBefore, .check(isStopped: false)) : (.ordered(isChecked: false), .stop)
    }

    fileprivate var lifts: Bool {
        switch own {
        case .stopping(_, let lifts, _), .continuing(let lifts, _): lifts
        case .none, .held: false
        }
    }

    fileprivate var cause: StateChangeReason? {
        switch own {
        case .stopping(_, _, let cause), .held(_, let cause), .continuing(_, let cause): cause
        case .none: nil
        }
    }
}

extension StopStatus {
    /// Drains begin anew with the next daemon.
    func add(to record: inout Record) {
        record.add("stopped", isStopped.digit)
        record.add("enforcement", enforcement.rawValue, (cause ?? .signal).rawValue)
        record.add("foreign-stop", ifPresent: phase.seen?.sender.map { [$0] })
        record.add("foreign-freeze", ifPresent: phase.seen?.cgroup.map { [$0] })
        record.add("lifts-foreign-stop", if: isLifting)
    }

    init(_ record: Record) throws(Record.Flaw) {
        let isStopped = try record.require("stopped") { $0.flag() }
        let foreign = ForeignStop(
            sender: try record.optional("foreign-stop") { $0.text() },
            cgroup: try record.optional("foreign-freeze") { $0.text() })
        let lifts = try record.flag("lifts-foreign-stop")
        let isLifting = lifts && foreign == .absent
        let own = try record.require("enforcement") { fields -> Own? in
            guard let enforcement: Enforcement = fields.value(), let cause: StateChangeReason = fields.value()
            else { return nil }
            return switch enforcement {
            case .none: Own.none
            case .stopping: .stopping(.ordered(isChecked: false), lifts: isLifting, cause)
            case .stopped: .held(.none, cause)
            case .continuing: .continuing(lifts: isLifting, cause)
            }
        }
        phase = Phase(seen: isStopped ? foreign : nil, own: own)
    }
}

extension ForeignStop {
    /// It is stopped by another program, no matter which.
    fileprivate var orUnknown: ForeignStop { self == .absent ? .unknown : self }
}

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

    /// How the process was observed, regardless of what we want.
    enum Seen: Hashable, Sendable {
        case running
        case standing(by: Others)

        var isStanding: Bool { self != .running }

        var others: Others {
            if case .standing(let by) = self { return by }
            return .nobody
        }
    }

    /// The drains of an application that we hold for long. They do not change its state (§ 5).
    enum Drain: Hashable, Sendable {
        case none
        case due(at: Microseconds)
        case open(until: Microseconds)
        /// The stop that ends the drain is under way.
        case closing(Course)

        var isUnderWay: Bool {
            switch self {
            case .open, .closing: true
            case .none, .due: false
            }
        }
    }

    /// The requirement of the holds.
    enum Wish: Hashable, Sendable {
        case run
        /// Only policy wants it stopped, so any objection to the stop counts (§ 2).
        case stopUnlessObjected
        case stop
    }

    /// The remaining steps until our stop is complete.
    enum Course: Hashable, Sendable {
        /// A check for objections to the stop is in progress. Nothing has been stopped yet.
        case asking
        /// The stop was ordered. `isChecked`: once it is stopped, it is checked once more.
        case ordered(isChecked: Bool)
        /// The whole application is stopped, so an objection that is found now existed before.
        case checking

        /// The next step, and what must be done; nil: the stop is complete.
        func next(_ event: Event) -> (Course?, Order?) {
            switch (self, event) {
            case (.ordered(isChecked: false), .stopCompleted): (nil, nil)
            case (.ordered(isChecked: true), .stopCompleted): (.checking, .check(stands: true))
            case (.asking, .unobjected): (.ordered(isChecked: true), .stop)
            case (.checking, .unobjected(stands: true)): (nil, nil)
            // Another process has continued it meanwhile.
            case (.checking, .unobjected(stands: false)): (.ordered(isChecked: true), .stop)
            // A person has requested it, so checks do not matter.
            case (.asking, .wanted(.stop, _)), (.checking, .wanted(.stop, _)):
                (.ordered(isChecked: false), .stop)
            case (.ordered, .wanted(let wish, _)) where wish != .run:
                (.ordered(isChecked: wish == .stopUnlessObjected), nil)
            default: (self, nil)
            }
        }
    }

    enum Phase: Hashable, Sendable {
        /// None of our orders is in progress, and we hold none of its processes.
        case idle(Seen)
        /// Our stop is in progress. `isLifting`: the end of another process's stop was ordered.
        case stopping(Seen, isLifting: Bool, Course, StateChangeReason)
        /// It is stopped, and we hold it. `others`: the other programs that want it stopped.
        case held(others: Others, Drain, StateChangeReason)
        /// Our continuation was ordered. `isLifting`: it also ends every stop by another process, because a
        /// person has requested that.
        case continuing(isStanding: Bool, isLifting: Bool, StateChangeReason)

        var seen: Seen {
            switch self {
            case .idle(let seen), .stopping(let seen, _, _, _): seen
            case .held(let others, _, _): .standing(by: others)
            case .continuing(let isStanding, _, _): isStanding ? .standing(by: .nobody) : .running
            }
        }

        var isStanding: Bool { seen.isStanding }

        /// The course of a stop that is under way.
        var course: Course? {
            switch self {
            case .stopping(_, _, let course, _), .held(_, .closing(let course), _): course
            case .idle, .held, .continuing: nil
            }
        }
    }

    enum Event: Hashable, Sendable {
        /// It was checked. `sender`: another process that was seen to stop it.
        case looked(Standing, sender: String?)
        /// Our order has been carried out: the whole application is stopped.
        case stopCompleted
        /// Our order has been carried out: the whole application was released. The standing is that of its
        /// main process.
        case resumeCompleted(Standing)
        /// The holds require this, for this reason.
        case wanted(Wish, StateChangeReason)
        /// There is no objection to the stop. `stands`: whether it was still stopped after the check.
        case unobjected(stands: Bool)
        /// A caller with the necessary permission has requested that it run: stops by others no longer count,
        /// and `lifts` ends them.
        case resumed(lifts: Bool)
        /// Our holds were given up: our stop was not carried out, or did not last.
        case gaveWay
        /// An application that we hold is drained at this time, unless it already has a time; nil: it is not
        /// drained.
        case drainDue(Microseconds?)
        case drainBegan(until: Microseconds)
        case drainEnded(Wish)
        /// The daemon before us was killed, and it is not known whether its orders were carried out. `isSignalled`:
        /// some SIGSTOP was not taken back meanwhile.
        case inherited(isHeld: Bool, isSignalled: Bool)
    }

    /// What must be done.
    enum Order: Hashable, Sendable {
        case check(stands: Bool)
        case stop
        /// Our stop ends. What another process has stopped stays stopped, unless the status `isLifting`.
        case resume
    }

    private(set) var phase: Phase
    private var contest = Contest()

    init(phase: Phase = .idle(.running)) { self.phase = phase }

    /// How often another process has recently continued it despite our holds.
    private struct Contest: Equatable, Sendable {
        var since: Microseconds = 0
        var count = 0
        /// How often it was continued during consecutive checks, no matter how long the checks took.
        var duringLooks = 0
    }

    /// If it is continued more often than this within `contestWindow`, we give up.
    static let contestLimit = 5
    static let contestWindow: Microseconds = 1_000_000

    // MARK: What is known

    /// It executes nothing, except during a drain.
    public var isStanding: Bool { phase.isStanding }

    /// The other program that wants it stopped, as far as is known; nil: no other program does.
    public var others: String? { wishes.holder }

    /// Another process has stopped it by signal, so we must not continue it.
    public var isSignalledByOthers: Bool { wishes.sender != nil }

    private var wishes: Others { phase.seen.others }

    /// While only a check for objections to a stop is in progress, there is no stop.
    public var enforcement: Enforcement {
        switch phase {
        case .idle, .stopping(.running, isLifting: false, .asking, _): .none
        case .stopping: .stopping
        case .held: .stopped
        case .continuing: .continuing
        }
    }

    /// It is stopped, and no program is known to want that.
    var isNobodys: Bool { phase == .idle(.standing(by: .nobody)) }

    /// A check for objections to our stop is in progress.
    var isBeingChecked: Bool { phase.course == .asking || phase.course == .checking }

    /// If it is found stopped, only we have stopped it.
    var isOursAlone: Bool {
        switch phase {
        case .stopping, .held: enforcement != .none && others == nil
        case .idle, .continuing: false
        }
    }

    /// The reason for our present or completed stop or continuation; nil: there is none.
    var cause: StateChangeReason? {
        switch phase {
        case .idle, .stopping(.running, isLifting: false, .asking, _): nil
        case .stopping(_, _, _, let cause), .held(_, _, let cause), .continuing(_, _, let cause): cause
        }
    }

    /// A caller with the necessary permission has requested that it run: every stop by another process is being
    /// ended, but that has not been observed yet.
    public var isLifting: Bool {
        switch phase {
        case .stopping(_, let isLifting, _, _), .continuing(_, let isLifting, _): isLifting
        case .idle, .held: false
        }
    }

    var drain: Drain {
        if case .held(_, let drain, _) = phase { return drain }
        return .none
    }

    /// When a drain must begin or end.
    var drainDeadline: Microseconds? {
        switch drain {
        case .due(let deadline), .open(let deadline): deadline
        case .none, .closing: nil
        }
    }

    /// Another process continues it despite our holds as often as we stop it.
    var isContested: Bool { max(contest.count, contest.duringLooks) > Self.contestLimit }

    // MARK: What happens

    /// Processes an event, and returns what must be done.
    @discardableResult
    mutating func take(_ event: Event, at now: Microseconds) -> Order? {
        let before = phase
        let (next, order) = Self.next(phase, event)
        phase = next
        // It runs although we hold it: it is stopped again, but not forever (§ 2).
        if case .looked = event, case .held = before, next == .idle(.running) {
            if now - contest.since > Self.contestWindow { (contest.since, contest.count) = (now, 0) }
            contest.count += 1
        }
        if case .unobjected(let stands) = event, before.course == .checking {
            contest.duringLooks = stands ? 0 : contest.duringLooks + 1
        }
        return order
    }

    /// Another process was seen to continue it faster than we could stop it.
    mutating func contend() { contest.count = Self.contestLimit + 1 }

    mutating func giveUpContest() { contest = Contest() }

    /// The table: the next phase, and what must be done.
    static func next(_ phase: Phase, _ event: Event) -> (Phase, Order?) {
        switch (phase, event) {
        case (_, .looked(let standing, _)) where standing.isOpen(of: phase.isStanding):
            return (phase, nil)
        case (.idle(let seen), .looked(let standing, let sender)):
            guard standing.isStanding(before: seen.isStanding) else { return (.idle(.running), nil) }
            return (.idle(.standing(by: standing.others(seen.others, sender).orSomebody)), nil)
        case (.stopping(let seen, let isLifting, let course, let cause), .looked(let standing, let sender)):
            guard standing.isStanding(before: seen.isStanding) else {
                return (.stopping(.running, isLifting: false, course, cause), nil)
            }
            // The stop may be our own doing.
            let others = standing.others(seen.others, sender)
            guard others != .nobody else {
                let stands: Seen = seen.isStanding ? .standing(by: .nobody) : .running
                return (.stopping(stands, isLifting: isLifting, course, cause), nil)
            }
            return (.stopping(.standing(by: others), isLifting: false, course, cause), nil)
        case (.held(let others, let drain, let cause), .looked(let standing, let sender)):
            if standing.isStanding(before: true) {
                return (.held(others: standing.others(others, sender), drain, cause), nil)
            }
            // It is being drained. This is not a change of its state, but shows that no other process holds
            // it stopped.
            return (drain.isUnderWay ? .held(others: .nobody, drain, cause) : .idle(.running), nil)
        case (.continuing(let isStanding, _, _), .looked(let standing, let sender)):
            if !standing.isStanding(before: isStanding) { return (.idle(.running), nil) }
            // It may be stopped because we have not released it yet.
            guard let sender, standing.signal != .none else { return (phase, nil) }
            return (.idle(.standing(by: standing.others(.nobody, sender))), nil)

        case (.stopping(let seen, let isLifting, let course, let cause), .stopCompleted),
            (.stopping(let seen, let isLifting, let course, let cause), .unobjected),
            (.stopping(let seen, let isLifting, let course, let cause), .wanted(.stop, _)),
            (.stopping(let seen, let isLifting, let course, let cause), .wanted(.stopUnlessObjected, _)):
            let (next, order) = course.next(event)
            guard let next else { return (.held(others: seen.others, .none, cause), order) }
            return (.stopping(seen, isLifting: isLifting, next, cause), order)
        case (.held(let others, .closing(let course), let cause), .stopCompleted),
            (.held(let others, .closing(let course), let cause), .unobjected),
            (.held(let others, .closing(let course), let cause), .wanted(.stop, _)),
            (.held(let others, .closing(let course), let cause), .wanted(.stopUnlessObjected, _)):
            let (next, order) = course.next(event)
            return (.held(others: others, next.map(Drain.closing) ?? .none, cause), order)
        case (.held, .stopCompleted), (_, .unobjected):
            return (phase, nil)
        case (.idle(let seen), .stopCompleted):
            return (.idle(.standing(by: seen.others.orSomebody)), nil)
        case (.continuing, .stopCompleted):
            return (phase, nil)

        case (.continuing(let isStanding, _, _), .resumeCompleted(let standing)):
            if standing.isOpen(of: isStanding) { return (phase, nil) }
            guard standing.isStanding(before: true) else { return (.idle(.running), nil) }
            // All our stops were released, so this stop is another program's.
            return (.idle(.standing(by: standing.others(.nobody, nil).orSomebody)), nil)
        case (.idle, .resumeCompleted(let standing)), (.stopping, .resumeCompleted(let standing)),
            (.held, .resumeCompleted(let standing)):
            return next(phase, .looked(standing, sender: nil))

        // An earlier daemon may have stopped some of it.
        case (.stopping(.running, isLifting: false, .asking, _), .wanted(.run, _)):
            return (.idle(.running), .resume)
        case (.stopping(.running, let isLifting, _, _), .wanted(.run, let cause)):
            return (.continuing(isStanding: false, isLifting: isLifting, cause), .resume)
        case (.stopping(.standing(by: .nobody), let isLifting, _, _), .wanted(.run, let cause)):
            return (.continuing(isStanding: true, isLifting: isLifting, cause), .resume)
        case (.held(others: .nobody, _, _), .wanted(.run, let cause)):
            return (.continuing(isStanding: true, isLifting: false, cause), .resume)
        case (.stopping(.standing(let others), _, _, _), .wanted(.run, _)),
            (.held(let others, _, _), .wanted(.run, _)):
            return (.idle(.standing(by: others)), .resume)
        case (.idle, .wanted(.run, _)), (.continuing, .wanted(.run, _)), (.held, .wanted):
            return (phase, nil)
        case (.idle(let seen), .wanted(let wish, let cause)):
            let (course, order) = begin(wish)
            return (.stopping(seen, isLifting: false, course, cause), order)
        case (.continuing(let isStanding, let isLifting, _), .wanted(let wish, let cause)):
            let (course, order) = begin(wish)
            let seen = isStanding ? Seen.standing(by: .nobody) : .running
            return (.stopping(seen, isLifting: isLifting, course, cause), order)

        case (.idle(.standing), .resumed(lifts: true)):
            return (.continuing(isStanding: true, isLifting: true, .request), nil)
        case (.stopping(let seen, _, _, _), .resumed(lifts: true)):
            return (.continuing(isStanding: seen.isStanding, isLifting: true, .request), .resume)
        case (.held, .resumed(lifts: true)):
            return (.continuing(isStanding: true, isLifting: true, .request), .resume)
        case (.idle(.standing), .resumed(lifts: false)):
            return (.idle(.standing(by: .nobody)), nil)
        case (.stopping(.standing, let isLifting, let course, let cause), .resumed(lifts: false)):
            return (.stopping(.standing(by: .nobody), isLifting: isLifting, course, cause), nil)
        case (.held(_, let drain, let cause), .resumed(lifts: false)):
            return (.held(others: .nobody, drain, cause), nil)
        case (.continuing(let isStanding, _, _), .resumed(lifts: true)):
            return (.continuing(isStanding: isStanding, isLifting: true, .request), nil)
        case (.idle(.running), .resumed), (.stopping(.running, _, _, _), .resumed), (.continuing, .resumed):
            return (phase, nil)

        // Some of its processes may be stopped: by the stop that had begun, or by an earlier daemon.
        case (.idle(let seen), .gaveWay), (.stopping(let seen, _, _, _), .gaveWay):
            return (.idle(seen), .resume)
        case (.held, .gaveWay), (.continuing, .gaveWay):
            return (phase, nil)

        case (.held(_, let drain, _), .drainDue) where drain.isUnderWay:
            return (phase, nil)
        case (.held(.nobody, .due, _), .drainDue(.some)):
            return (phase, nil)
        case (.held(.nobody, _, let cause), .drainDue(let time)):
            return (.held(others: .nobody, time.map(Drain.due) ?? .none, cause), nil)
        case (.held(let others, _, let cause), .drainDue):
            // We must not lift another process's stop, not even for a moment.
            return (.held(others: others, .none, cause), nil)
        case (.held(let others, .due, let cause), .drainBegan(let end)):
            return (.held(others: others, .open(until: end), cause), nil)
        case (.held(let others, .open, let cause), .drainEnded(let wish)):
            let (course, order) = begin(wish)
            return (.held(others: others, .closing(course), cause), order)
        case (_, .drainDue), (_, .drainBegan), (_, .drainEnded):
            return (phase, nil)

        // The holds cause the stop to be ordered again, or to be undone as if it had been carried out.
        case (_, .inherited(isHeld: true, let isSignalled)):
            return (.idle(phase.seen.inherited(isSignalled)), nil)
        case (.held(_, _, let cause), .inherited(isHeld: false, let isSignalled)):
            let seen = phase.seen.inherited(isSignalled)
            return (.stopping(seen, isLifting: false, .ordered(isChecked: false), cause), nil)
        case (.stopping(_, let isLifting, _, let cause), .inherited(isHeld: false, let isSignalled)),
            (.continuing(_, let isLifting, let cause), .inherited(isHeld: false, let isSignalled)):
            let seen = phase.seen.inherited(isSignalled)
            return (.stopping(seen, isLifting: isLifting, .ordered(isChecked: false), cause), nil)
        case (.idle, .inherited(isHeld: false, _)):
            return (phase, nil)
        }
    }

    private static func begin(_ wish: Wish) -> (Course, Order) {
        wish == .stopUnlessObjected ? (.asking, .check(stands: false)) : (.ordered(isChecked: false), .stop)
    }
}

extension StopStatus {
    /// Drains begin anew with the next daemon.
    func add(to record: inout Record) {
        record.add("stopped", isStanding.digit)
        record.add("enforcement", enforcement.rawValue, (cause ?? .signal).rawValue)
        record.add("foreign-stop", ifPresent: wishes.sender.map { [$0] })
        record.add("foreign-freeze", ifPresent: wishes.cgroup.map { [$0] })
        record.add("lifts-foreign-stop", ifPresent: isLifting ? [isLifting.digit] : nil)
    }

    init(_ record: Record) throws(Record.Flaw) {
        let isStanding = try record.require("stopped") { $0.flag() }
        let others = Others(
            sender: try record.optional("foreign-stop") { $0.text() },
            cgroup: try record.optional("foreign-freeze") { $0.text() })
        let lifts = try record.optional("lifts-foreign-stop") { $0.flag() } ?? false
        let isLifting = lifts && others == .nobody
        let seen = isStanding ? Seen.standing(by: others) : .running
        phase = try record.require("enforcement") { fields -> Phase? in
            guard let enforcement: Enforcement = fields.value(), let cause: StateChangeReason = fields.value()
            else { return nil }
            return switch enforcement {
            case .none: .idle(seen)
            case .stopping: .stopping(seen, isLifting: isLifting, .ordered(isChecked: false), cause)
            case .stopped: .held(others: others, .none, cause)
            case .continuing: .continuing(isStanding: isStanding, isLifting: isLifting, cause)
            }
        }
    }
}

extension StopStatus.Seen {
    fileprivate func inherited(_ isSignalled: Bool) -> Self {
        guard case .standing(let others) = self else { return self }
        return .standing(by: others.inherited(isSignalled))
    }
}

extension Others {
    /// Once we order our own stop, we can no longer observe whether another program has lifted its stop.
    fileprivate func inherited(_ isSignalled: Bool) -> Others {
        Others(sender: isSignalled ? sender : nil, cgroup: cgroup)
    }

    /// It is stopped by another program, no matter which.
    fileprivate var orSomebody: Others { self == .nobody ? .somebody : self }
}

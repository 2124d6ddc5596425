import AppStateContract

/// Who has an application stopped, and how far our own stop or continuation has come (§ 2, "Stops").
///
/// Everything that changes it is an `Event`, and `next` is the one table of what follows. Whether we want it stopped is
/// not known here: that is what its holds say (`.wanted`).
public struct StopStatus: Equatable, Sendable {
    /// How far our own stop has come.
    public enum Enforcement: String, Hashable, Sendable {
        case none
        /// SIGSTOP was sent, the stop was not seen yet.
        case stopping
        case stopped
        /// SIGCONT was sent, the process was not seen to run yet.
        case continuing
    }

    /// How the process was seen, without regard to us.
    enum Seen: Hashable, Sendable {
        case running
        case standing(by: Others)

        var isStanding: Bool { self != .running }

        var others: Others {
            if case .standing(let by) = self { return by }
            return .nobody
        }
    }

    /// The breaths of an application that we hold for long: no changes of its state (§ 5).
    enum Breath: Hashable, Sendable {
        case none
        case due(at: Microseconds)
        case open(until: Microseconds)
        /// The stop that ends it is under way.
        case closing(Course)

        var isUnderWay: Bool {
            switch self {
            case .open, .closing: true
            case .none, .due: false
            }
        }
    }

    /// What the holds want.
    enum Wish: Hashable, Sendable {
        case run
        /// Policy or pressure wants it stopped, and nobody else: whatever speaks against the stop counts (§ 2).
        case stopUnlessObjected
        case stop
    }

    /// What is still to be done until our stop is complete.
    enum Course: Hashable, Sendable {
        /// It is looked at whether something speaks against the stop. Nothing was stopped yet.
        case asking
        /// The stop was ordered. `isChecked`: what stands then is looked at once more.
        case ordered(isChecked: Bool)
        /// All of it stand: what speaks against the stop now, spoke against it before.
        case checking

        /// What follows, and what is to be done; nil: the stop is complete.
        func next(_ event: Event) -> (Course?, Order?) {
            switch (self, event) {
            case (.ordered(isChecked: false), .stopCompleted): (nil, nil)
            case (.ordered(isChecked: true), .stopCompleted): (.checking, .check(stands: true))
            case (.asking, .unobjected): (.ordered(isChecked: true), .stop)
            case (.checking, .unobjected(stands: true)): (nil, nil)
            // Somebody has continued it meanwhile.
            case (.checking, .unobjected(stands: false)): (.ordered(isChecked: true), .stop)
            // A person wants it: that is no matter of looks.
            case (.asking, .wanted(.stop, _)), (.checking, .wanted(.stop, _)):
                (.ordered(isChecked: false), .stop)
            case (.ordered, .wanted(let wish, _)) where wish != .run:
                (.ordered(isChecked: wish == .stopUnlessObjected), nil)
            default: (self, nil)
            }
        }
    }

    enum Phase: Hashable, Sendable {
        /// Nothing of ours is under way, and nothing of it is held by us.
        case idle(Seen)
        /// Our stop is under way. `isLifting`: the end of somebody else's was ordered.
        case stopping(Seen, isLifting: Bool, Course, StateChangeReason)
        /// It stands, and we hold it. `others`: somebody else wants it stopped, too.
        case held(others: Others, Breath, StateChangeReason)
        /// Our continuation was ordered. `isLifting`: it ends somebody else's stop, too.
        case continuing(isStanding: Bool, isLifting: Bool, StateChangeReason)

        var seen: Seen {
            switch self {
            case .idle(let seen), .stopping(let seen, _, _, _): seen
            case .held(let others, _, _): .standing(by: others)
            case .continuing(let isStanding, _, _): isStanding ? .standing(by: .nobody) : .running
            }
        }

        var isStanding: Bool { seen.isStanding }

        /// Of a stop that is under way.
        var course: Course? {
            switch self {
            case .stopping(_, _, let course, _), .held(_, .closing(let course), _): course
            case .idle, .held, .continuing: nil
            }
        }
    }

    enum Event: Hashable, Sendable {
        /// It was looked at. `sender`: somebody else, who was seen to stop it.
        case looked(Standing, sender: String?)
        /// What was ordered has been carried out: all of it stand.
        case stopCompleted
        /// What was ordered has been carried out: all of it were let go, and its main process stands like this.
        case resumeCompleted(Standing)
        /// What we held was found not to be the application, or not all of it, and was let go.
        case lost
        /// The holds want this of it, for this reason.
        case wanted(Wish, StateChangeReason)
        /// Nothing speaks against the stop. `stands`: whether it still did after the look.
        case unobjected(stands: Bool)
        /// Somebody who may has asked that it run: what others want counts no more, and `lifts` ends it.
        case resumed(lifts: Bool)
        /// Our holds were given up: our stop was not carried out, or not kept.
        case gaveWay
        /// What we hold breathes at this time, unless it has a time already; nil: it does not.
        case breathDue(Microseconds?)
        case breathBegan(until: Microseconds)
        case breathEnded(Wish)
        /// The daemon before us was killed: whether what it had ordered was carried out is not known. `isSignalled`: some
        /// SIGSTOP was not taken back meanwhile.
        case inherited(isHeld: Bool, isSignalled: Bool)

        /// How it stands was seen, not ordered.
        var isLook: Bool {
            if case .looked = self { return true }
            return self == .lost
        }
    }

    /// What is to be done.
    enum Order: Hashable, Sendable {
        case check(stands: Bool)
        case stop
        /// `sparingMain`: somebody else wants it stopped.
        case resume(sparingMain: Bool)
        case letGo(sparingMain: Bool)
    }

    private(set) var phase: Phase
    private var contest = Contest()

    init(phase: Phase = .idle(.running)) { self.phase = phase }

    /// How often somebody continued it against our holds, lately.
    private struct Contest: Equatable, Sendable {
        var since: Microseconds = 0
        var count = 0
        /// While it was looked at, one time after the other, however long the looks took.
        var duringLooks = 0
    }

    /// Continued more often than this within `contestWindow`, we stop fighting.
    static let contestLimit = 5
    static let contestWindow: Microseconds = 1_000_000

    // MARK: What is known

    /// It executes nothing, but for a breath.
    public var isStanding: Bool { phase.isStanding }

    /// Somebody else wants it stopped: who, as far as it is known.
    public var others: String? { wishes.holder }

    /// Somebody else has stopped it by signal, so that it is not ours to continue.
    public var isSignalledByOthers: Bool { wishes.sender != nil }

    private var wishes: Others { phase.seen.others }

    /// As long as it is only asked whether something speaks against a stop, there is none.
    public var enforcement: Enforcement {
        switch phase {
        case .idle, .stopping(.running, isLifting: false, .asking, _): .none
        case .stopping: .stopping
        case .held: .stopped
        case .continuing: .continuing
        }
    }

    /// It stands, and nobody is known to want it.
    var isNobodys: Bool { phase == .idle(.standing(by: .nobody)) }

    /// It is being looked at whether something speaks against our stop.
    var isBeingChecked: Bool { phase.course == .asking || phase.course == .checking }

    /// Whoever finds it stopped finds our doing, and nobody else's.
    var isOursAlone: Bool {
        switch phase {
        case .stopping, .held: enforcement != .none && others == nil
        case .idle, .continuing: false
        }
    }

    /// What made us order the stop or continuation that is under way or done; nil: nothing is.
    var cause: StateChangeReason? {
        switch phase {
        case .idle, .stopping(.running, isLifting: false, .asking, _): nil
        case .stopping(_, _, _, let cause), .held(_, _, let cause), .continuing(_, _, let cause): cause
        }
    }

    /// Another's stop is being ended, and was not seen to end yet.
    var isLifting: Bool {
        switch phase {
        case .stopping(_, let isLifting, _, _), .continuing(_, let isLifting, _): isLifting
        case .idle, .held: false
        }
    }

    var breath: Breath {
        if case .held(_, let breath, _) = phase { return breath }
        return .none
    }

    /// When it is to begin or to end a breath.
    var breathDeadline: Microseconds? {
        switch breath {
        case .due(let deadline), .open(let deadline): deadline
        case .none, .closing: nil
        }
    }

    /// Somebody continues it against our holds as often as we stop it.
    var isContested: Bool { max(contest.count, contest.duringLooks) > Self.contestLimit }

    // MARK: What happens

    /// Whether a look would tell anything new.
    public func isNews(_ standing: Standing, sender: String?) -> Bool {
        Self.next(phase, .looked(standing, sender: sender)).0 != phase
    }

    /// Takes note of what happened, and answers what is to be done about it.
    @discardableResult
    mutating func take(_ event: Event, at now: Microseconds) -> Order? {
        let before = phase
        let (next, order) = Self.next(phase, event)
        phase = next
        // It runs against a hold of ours: it is stopped again, but not for ever (§ 2).
        if event.isLook, case .held = before, next == .idle(.running) {
            if now - contest.since > Self.contestWindow { (contest.since, contest.count) = (now, 0) }
            contest.count += 1
        }
        if case .unobjected(let stands) = event, before.course == .checking {
            contest.duringLooks = stands ? 0 : contest.duringLooks + 1
        }
        return order
    }

    /// Somebody was seen to continue it faster than we could stop it.
    mutating func contend() { contest.count = Self.contestLimit + 1 }

    mutating func giveUpContest() { contest = Contest() }

    /// The table: what follows in this phase, and what is to be done.
    static func next(_ phase: Phase, _ event: Event) -> (Phase, Order?) {
        switch (phase, event) {
        case (_, .looked(let standing, _)) where standing.isOpen(of: phase.isStanding):
            return (phase, nil)
        case (.idle(let seen), .looked(let standing, let sender)):
            guard standing.isStanding(before: seen.isStanding) else { return (.idle(.running), nil) }
            return (.idle(.standing(by: standing.others(seen.others, sender).orSomebody)), nil)
        case (.stopping(let seen, let isLifting, let course, let cause), .looked(let standing, let sender)):
            guard standing.isStanding(before: seen.isStanding) else {
                return (.stopping(.running, isLifting: isLifting, course, cause), nil)
            }
            // What stands may be our own doing.
            let others = standing.others(seen.others, sender)
            guard others != .nobody else {
                let stands: Seen = seen.isStanding ? .standing(by: .nobody) : .running
                return (.stopping(stands, isLifting: isLifting, course, cause), nil)
            }
            return (.stopping(.standing(by: others), isLifting: false, course, cause), nil)
        case (.held(let others, let breath, let cause), .looked(let standing, let sender)):
            if standing.isStanding(before: true) {
                return (.held(others: standing.others(others, sender), breath, cause), nil)
            }
            // It breathes: that is no change of its state, but nobody else has it stopped.
            return (breath.isUnderWay ? .held(others: .nobody, breath, cause) : .idle(.running), nil)
        case (.continuing(let isStanding, _, _), .looked(let standing, let sender)):
            if !standing.isStanding(before: isStanding) { return (.idle(.running), nil) }
            // What stands may be what we have not let go yet.
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
            return (.held(others: others, next.map(Breath.closing) ?? .none, cause), order)
        case (.held, .stopCompleted), (_, .unobjected):
            return (phase, nil)
        case (.idle(let seen), .stopCompleted):
            return (.idle(.standing(by: seen.others.orSomebody)), nil)
        case (.continuing, .stopCompleted):
            return (phase, nil)

        case (.continuing(let isStanding, _, _), .resumeCompleted(let standing)):
            if standing.isOpen(of: isStanding) { return (phase, nil) }
            guard standing.isStanding(before: true) else { return (.idle(.running), nil) }
            // All of ours were let go: this is another's.
            return (.idle(.standing(by: standing.others(.nobody, nil).orSomebody)), nil)
        case (.idle, .resumeCompleted(let standing)), (.stopping, .resumeCompleted(let standing)),
            (.held, .resumeCompleted(let standing)):
            return next(phase, .looked(standing, sender: nil))

        case (.held(.nobody, let breath, _), .lost) where !breath.isUnderWay:
            return (.idle(.running), nil)
        case (.held(let others, let breath, _), .lost) where !breath.isUnderWay:
            return (.idle(.standing(by: others)), nil)
        case (_, .lost):
            return (phase, nil)

        // A daemon before us may have stopped some of it.
        case (.stopping(.running, isLifting: false, .asking, _), .wanted(.run, _)):
            return (.idle(.running), .letGo(sparingMain: false))
        case (.stopping(.running, let isLifting, _, _), .wanted(.run, let cause)):
            return (
                .continuing(isStanding: false, isLifting: isLifting, cause), .resume(sparingMain: false)
            )
        case (.stopping(.standing(by: .nobody), let isLifting, _, _), .wanted(.run, let cause)):
            return (
                .continuing(isStanding: true, isLifting: isLifting, cause), .resume(sparingMain: false)
            )
        case (.held(others: .nobody, _, _), .wanted(.run, let cause)):
            return (.continuing(isStanding: true, isLifting: false, cause), .resume(sparingMain: false))
        case (.stopping(.standing(let others), _, _, _), .wanted(.run, _)),
            (.held(let others, _, _), .wanted(.run, _)):
            // Whoever has frozen it does so still when our signal is taken back.
            return (.idle(.standing(by: others)), .resume(sparingMain: others.sender != nil))
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
            return (
                .continuing(isStanding: seen.isStanding, isLifting: true, .request),
                .resume(sparingMain: false)
            )
        case (.held, .resumed(lifts: true)):
            return (.continuing(isStanding: true, isLifting: true, .request), .resume(sparingMain: false))
        case (.idle(.standing), .resumed(lifts: false)):
            return (.idle(.standing(by: .nobody)), nil)
        case (.stopping(.standing, let isLifting, let course, let cause), .resumed(lifts: false)):
            return (.stopping(.standing(by: .nobody), isLifting: isLifting, course, cause), nil)
        case (.held(_, let breath, let cause), .resumed(lifts: false)):
            return (.held(others: .nobody, breath, cause), nil)
        case (.idle(.running), .resumed), (.stopping(.running, _, _, _), .resumed), (.continuing, .resumed):
            return (phase, nil)

        // Some of it may stand: what was begun, or what a daemon before us has stopped.
        case (.idle(let seen), .gaveWay), (.stopping(let seen, _, _, _), .gaveWay):
            return (.idle(seen), .letGo(sparingMain: seen.others.sender != nil))
        case (.held, .gaveWay), (.continuing, .gaveWay):
            return (phase, nil)

        case (.held(_, let breath, _), .breathDue) where breath.isUnderWay:
            return (phase, nil)
        case (.held(.nobody, .due, _), .breathDue(.some)):
            return (phase, nil)
        case (.held(.nobody, _, let cause), .breathDue(let time)):
            return (.held(others: .nobody, time.map(Breath.due) ?? .none, cause), nil)
        case (.held(let others, _, let cause), .breathDue):
            // Another's stop is not ours to lift, not for a moment.
            return (.held(others: others, .none, cause), nil)
        case (.held(let others, .due, let cause), .breathBegan(let end)):
            return (.held(others: others, .open(until: end), cause), nil)
        case (.held(let others, .open, let cause), .breathEnded(let wish)):
            let (course, order) = begin(wish)
            return (.held(others: others, .closing(course), cause), order)
        case (_, .breathDue), (_, .breathBegan), (_, .breathEnded):
            return (phase, nil)

        // The holds have it ordered anew, or undone as if it had been carried out.
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
    /// Breaths begin anew with the next daemon.
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
    /// Once we order our own stop, it cannot be seen any more that another's was taken back.
    fileprivate func inherited(_ isSignalled: Bool) -> Others {
        Others(sender: isSignalled ? sender : nil, cgroup: cgroup)
    }

    /// Whoever it is: it stands, and not by us.
    fileprivate var orSomebody: Others { self == .nobody ? .somebody : self }
}

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
        /// The stop that ends it was ordered and not seen yet.
        case closing

        var isUnderWay: Bool {
            switch self {
            case .open, .closing: true
            case .none, .due: false
            }
        }
    }

    enum Phase: Hashable, Sendable {
        /// Nothing of ours is under way, and nothing of it is held by us.
        case idle(Seen)
        /// Our stop was ordered. `isLifting`: so was the end of somebody else's.
        case stopping(Seen, isLifting: Bool, StateChangeReason)
        /// It stands, and we hold it. `others`: somebody else wants it stopped, too.
        case held(others: Others, Breath, StateChangeReason)
        /// Our continuation was ordered. `isLifting`: it ends somebody else's stop, too.
        case continuing(isStanding: Bool, isLifting: Bool, StateChangeReason)

        var isStanding: Bool {
            switch self {
            case .idle(let seen), .stopping(let seen, _, _): seen.isStanding
            case .held: true
            case .continuing(let isStanding, _, _): isStanding
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
        /// The holds want it stopped, or do not, for this reason.
        case wanted(Bool, StateChangeReason)
        /// Somebody who may has asked that it run: what others want counts no more, and `lifts` ends it.
        case resumed(lifts: Bool)
        /// Our stop was not carried out, or not kept. `isHeld`: a hold has it ordered anew.
        case gaveWay(isHeld: Bool)
        /// What we hold breathes at this time, unless it has a time already; nil: it does not.
        case breathDue(Microseconds?)
        case breathBegan(until: Microseconds)
        case breathEnded
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
        case stop
        /// `sparingMain`: somebody else wants it stopped.
        case resume(sparingMain: Bool)
    }

    private(set) var phase: Phase
    private var contest = Contest()

    init(phase: Phase = .idle(.running)) { self.phase = phase }

    /// How often somebody continued it against our holds, lately.
    private struct Contest: Equatable, Sendable {
        var since: Microseconds = 0
        var count = 0
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

    private var wishes: Others {
        switch phase {
        case .idle(let seen), .stopping(let seen, _, _): seen.others
        case .held(let others, _, _): others
        case .continuing: .nobody
        }
    }

    public var enforcement: Enforcement {
        switch phase {
        case .idle: .none
        case .stopping: .stopping
        case .held: .stopped
        case .continuing: .continuing
        }
    }

    /// It stands, and nobody is known to want it.
    var isNobodys: Bool { phase == .idle(.standing(by: .nobody)) }

    /// Whoever finds it stopped finds our doing, and nobody else's.
    var isOursAlone: Bool {
        switch phase {
        case .stopping, .held: others == nil
        case .idle, .continuing: false
        }
    }

    /// What made us order the stop or continuation that is under way or done; nil: nothing is.
    var cause: StateChangeReason? {
        switch phase {
        case .idle: nil
        case .stopping(_, _, let cause), .held(_, _, let cause), .continuing(_, _, let cause): cause
        }
    }

    /// Another's stop is being ended, and was not seen to end yet.
    var isLifting: Bool {
        switch phase {
        case .stopping(_, let isLifting, _), .continuing(_, let isLifting, _): isLifting
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
    var isContested: Bool { contest.count > Self.contestLimit }

    // MARK: What happens

    /// Whether a look would tell anything new.
    public func isNews(_ standing: Standing, sender: String?) -> Bool {
        Self.next(phase, .looked(standing, sender: sender)).0 != phase
    }

    /// Takes note of what happened, and answers what is to be done about it: only wishes and breaths order something.
    @discardableResult
    mutating func take(_ event: Event, at now: Microseconds) -> Order? {
        let before = phase
        let (next, order) = Self.next(phase, event)
        phase = next
        // It runs against a hold of ours: it is stopped again, but not for ever (§ 2).
        if event.isLook, case .held = before, next == .idle(.running) {
            if now - contest.since > Self.contestWindow { contest = Contest(since: now, count: 0) }
            contest.count += 1
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
        case (.stopping(let seen, let isLifting, let cause), .looked(let standing, let sender)):
            guard standing.isStanding(before: seen.isStanding) else {
                return (.stopping(.running, isLifting: isLifting, cause), nil)
            }
            // What stands may be our own doing.
            let others = standing.others(seen.others, sender)
            guard others != .nobody else {
                return (
                    .stopping(
                        seen.isStanding ? .standing(by: .nobody) : .running, isLifting: isLifting, cause),
                    nil
                )
            }
            return (.stopping(.standing(by: others), isLifting: false, cause), nil)
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

        case (.stopping(let seen, _, let cause), .stopCompleted):
            return (.held(others: seen.others, .none, cause), nil)
        case (.held(let others, .closing, let cause), .stopCompleted):
            return (.held(others: others, .none, cause), nil)
        case (.held, .stopCompleted):
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

        case (.idle(let seen), .wanted(true, let cause)):
            return (.stopping(seen, isLifting: false, cause), .stop)
        case (.continuing(let isStanding, let isLifting, _), .wanted(true, let cause)):
            let seen = isStanding ? Seen.standing(by: .nobody) : .running
            return (.stopping(seen, isLifting: isLifting, cause), .stop)
        case (.stopping, .wanted(true, _)), (.held, .wanted(true, _)):
            return (phase, nil)
        case (.stopping(.running, let isLifting, _), .wanted(false, let cause)):
            return (
                .continuing(isStanding: false, isLifting: isLifting, cause), .resume(sparingMain: false)
            )
        case (.stopping(.standing(by: .nobody), let isLifting, _), .wanted(false, let cause)):
            return (
                .continuing(isStanding: true, isLifting: isLifting, cause), .resume(sparingMain: false)
            )
        case (.held(others: .nobody, _, _), .wanted(false, let cause)):
            return (.continuing(isStanding: true, isLifting: false, cause), .resume(sparingMain: false))
        case (.stopping(.standing(let others), _, _), .wanted(false, _)),
            (.held(let others, _, _), .wanted(false, _)):
            // Whoever has frozen it does so still when our signal is taken back.
            return (.idle(.standing(by: others)), .resume(sparingMain: others.sender != nil))
        case (.idle, .wanted(false, _)), (.continuing, .wanted(false, _)):
            return (phase, nil)

        case (.idle(.standing), .resumed(lifts: true)):
            return (.continuing(isStanding: true, isLifting: true, .request), nil)
        case (.stopping(let seen, _, _), .resumed(lifts: true)):
            return (
                .continuing(isStanding: seen.isStanding, isLifting: true, .request),
                .resume(sparingMain: false)
            )
        case (.held, .resumed(lifts: true)):
            return (.continuing(isStanding: true, isLifting: true, .request), .resume(sparingMain: false))
        case (.idle(.standing), .resumed(lifts: false)):
            return (.idle(.standing(by: .nobody)), nil)
        case (.stopping(.standing, let isLifting, let cause), .resumed(lifts: false)):
            return (.stopping(.standing(by: .nobody), isLifting: isLifting, cause), nil)
        case (.held(_, let breath, let cause), .resumed(lifts: false)):
            return (.held(others: .nobody, breath, cause), nil)
        case (.idle(.running), .resumed), (.stopping(.running, _, _), .resumed), (.continuing, .resumed):
            return (phase, nil)

        case (.stopping(let seen, _, _), .gaveWay):
            return (.idle(seen), nil)
        case (.held(let others, .closing, _), .gaveWay(isHeld: true)):
            return (.idle(.standing(by: others)), nil)
        case (.idle, .gaveWay), (.held, .gaveWay), (.continuing, .gaveWay):
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
        case (.held(let others, .open, let cause), .breathEnded):
            return (.held(others: others, .closing, cause), .stop)
        case (_, .breathDue), (_, .breathBegan), (_, .breathEnded):
            return (phase, nil)

        // Undone as if it had been carried out, or ordered anew: `gaveWay` is next where a hold is left.
        case (.idle(let seen), .inherited(isHeld: true, let isSignalled)):
            return (.stopping(seen.inherited(isSignalled), isLifting: false, .request), nil)
        case (.held(let others, _, let cause), .inherited(_, let isSignalled)):
            return (.stopping(.standing(by: others.inherited(isSignalled)), isLifting: false, cause), nil)
        case (.stopping(let seen, let isLifting, let cause), .inherited(_, let isSignalled)):
            return (.stopping(seen.inherited(isSignalled), isLifting: isLifting, cause), nil)
        case (.continuing(let isStanding, let isLifting, let cause), .inherited):
            return (
                .stopping(isStanding ? .standing(by: .nobody) : .running, isLifting: isLifting, cause), nil
            )
        case (.idle, .inherited(isHeld: false, _)):
            return (phase, nil)
        }
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
            case .stopping: .stopping(seen, isLifting: isLifting, cause)
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

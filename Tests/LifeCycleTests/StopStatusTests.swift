import AppStateContract
import Testing

@testable import LifeCycle

/// The table of stops: every phase with every event, and every history of a small world until it comes to rest.
@Suite("Stop status")
struct StopStatusTests {
    typealias Phase = StopStatus.Phase
    typealias Event = StopStatus.Event

    private static let reasons: [StateChangeReason] = [.request, .policy]
    private static let others: [Others] = [
        .nobody, .somebody, Others(sender: "x"), Others(cgroup: "c"), Others(sender: "x", cgroup: "c"),
    ]
    private static let seen: [Others?] = [nil] + others
    private static let quiet: [Others?] = [nil, .nobody]
    private static let courses: [StopStatus.Course] = [
        .asking, .ordered(isChecked: false), .ordered(isChecked: true), .checking,
    ]
    private static let drains: [StopStatus.Drain] =
        [.none, .due(at: 10), .open(until: 20)] + courses.map { .closing($0) }
    private static let wishes: [StopStatus.Wish] = [.run, .stopUnlessObjected, .stop]

    static let phases: [Phase] = seen.map { Phase(seen: $0) } + reasons.flatMap(ordered)

    private static func ordered(_ cause: StateChangeReason) -> [Phase] {
        var phases: [Phase] = []
        for course in courses {
            phases += seen.map { Phase(seen: $0, own: .stopping(course, lifts: false, cause)) }
            // While a foreign stop is being lifted, no other process is known to want it.
            phases += quiet.map { Phase(seen: $0, own: .stopping(course, lifts: true, cause)) }
        }
        for flag in [true, false] {
            phases += quiet.map { Phase(seen: $0, own: .continuing(lifts: flag, cause)) }
        }
        for others in others {
            phases += drains.map { Phase(seen: others, own: .held($0, cause)) }
        }
        return phases
    }

    private static let standings: [Standing] = [Standing.Signal.none, .pending, .stopped].flatMap { signal in
        [nil, freeze(true, true), freeze(true, false), freeze(false, true), freeze(false, false)]
            .map { Standing(signal: signal, freeze: $0) }
    }

    private static func freeze(_ isOurs: Bool, _ isComplete: Bool) -> Standing.Freeze {
        Standing.Freeze(cgroup: "c", isOurs: isOurs, isComplete: isComplete)
    }

    static let events: [Event] = {
        var events: [Event] = [.stopCompleted, .gaveWay]
        for standing in standings {
            events += [nil, "y"].map { .looked(standing, sender: $0) }
            events.append(.resumeCompleted(standing))
        }
        for flag in [true, false] {
            events += [.unobjected(stands: flag), .resumed(lifts: flag)]
            events += [true, false].map { .inherited(isHeld: flag, isSignalled: $0) }
        }
        for wish in wishes {
            events += reasons.map { .wanted(wish, $0) }
            events.append(.drainEnded(wish))
        }
        return events + [.drainDue(nil), .drainDue(30), .drainBegan(until: 40)]
    }()

    private func check(_ before: StopStatus, _ event: Event) {
        var after = before
        let order = after.take(event, at: 0)
        let comment: Comment = "\(before.phase), \(event): \(after.phase), \(String(describing: order))"
        let isOurs = before.isOurs
        let staysOurs = after.isOurs
        #expect(after.others == nil || after.isStanding, comment)
        #expect(!after.isLifting || after.others == nil, comment)
        switch event {
        case .looked(let standing, let sender):
            #expect(order == nil && after == after.taking(event), comment)
            checkLook(before, after, standing, sender, comment)
        case .stopCompleted:
            switch before.course {
            case .asking?, .checking?:
                #expect(order == nil && after == before, comment)
            case .ordered(isChecked: true)?:
                #expect(order == .check(stands: true) && after.course == .checking, comment)
                #expect(after.isStanding == before.isStanding && after.others == before.others, comment)
            case .ordered(isChecked: false)?, nil:
                #expect(order == nil && staysOurs == isOurs && after.course == nil, comment)
                #expect(after.others == before.others || before.enforcement == .none, comment)
                #expect(after.isStanding || before.enforcement == .continuing, comment)
            }
        case .unobjected(let stands):
            #expect(after.others == before.others && staysOurs == isOurs, comment)
            if before.course == .asking || before.course == .checking && !stands {
                #expect(order == .stop && after.course == .ordered(isChecked: true), comment)
            } else if before.course == .checking {
                #expect(order == nil && after.enforcement == .stopped && after.course == nil, comment)
            } else {
                #expect(order == nil && after == before, comment)
            }
        case .resumeCompleted(let standing):
            #expect(order == nil, comment)
            if before.enforcement == .continuing, !standing.isOpen(of: before.isStanding) {
                #expect(after.enforcement == .none, comment)
                #expect(after.isStanding == standing.isStanding(before: true), comment)
                #expect((after.others != nil) == after.isStanding, comment)
            } else {
                #expect(after.phase == before.taking(.looked(standing, sender: nil)).phase, comment)
            }
        case .wanted(let wish, let cause):
            #expect(staysOurs == (wish != .run) && after == after.taking(event), comment)
            #expect(after.isStanding == before.isStanding && after.others == before.others, comment)
            if wish == .run, before.course == .asking, before.enforcement == .none {
                #expect(order == .resume && after.phase == Phase(), comment)
            } else if wish == .run {
                #expect(order == (isOurs ? .resume : nil), comment)
            } else if !isOurs {
                #expect(order == (wish == .stop ? .stop : .check(stands: false)), comment)
                #expect(after.course == (wish == .stop ? .ordered(isChecked: false) : .asking), comment)
            } else {
                let isBeingChecked = before.course == .asking || before.course == .checking
                #expect(order == (wish == .stop && isBeingChecked ? .stop : nil), comment)
                #expect((after.course == nil) == (before.course == nil), comment)
                #expect(wish != .stop || [nil, .ordered(isChecked: false)].contains(after.course), comment)
                #expect(wish == .stop || after.course != .ordered(isChecked: false), comment)
            }
            #expect(isOurs || order == nil || after.cause == cause || after.enforcement == .none, comment)
        case .resumed(let lifts):
            #expect(order == (lifts && isOurs ? .resume : nil), comment)
            #expect(after.others == nil && after.isStanding == before.isStanding, comment)
            #expect(
                !lifts || after.isLifting || before.enforcement == .continuing || before == after, comment)
            #expect(lifts || after.enforcement == before.enforcement, comment)
        case .gaveWay:
            let isDone = [.stopped, .continuing].contains(before.enforcement)
            #expect(order == (isDone ? nil : .resume) && (!isDone || after == before), comment)
            #expect(after.isStanding == before.isStanding, comment)
            #expect(after.others == before.others && after.course == nil || isDone, comment)
        case .inherited(let isHeld, let isSignalled):
            #expect(order == nil && after.isStanding == before.isStanding, comment)
            let isDone = before.enforcement == .none && before.course == nil && !isHeld
            #expect(!(isSignalled || isDone) || after.others == before.others, comment)
            #expect(isSignalled || isDone || !after.isSignalledByOthers, comment)
            #expect(after.enforcement == (isDone || isHeld ? .none : .stopping), comment)
        case .drainDue(let time):
            #expect(order == nil && after.enforcement == before.enforcement, comment)
            #expect(after.drain.isUnderWay == before.drain.isUnderWay, comment)
            let mayDrain = before.enforcement == .stopped && before.others == nil && time != nil
            #expect((after.drain != .none) == (mayDrain || before.drain.isUnderWay), comment)
        case .drainBegan(let end):
            if case .due = before.drain {
                #expect(after.drain == .open(until: end) && order == nil, comment)
            } else {
                #expect(after == before && order == nil, comment)
            }
        case .drainEnded(let wish):
            if case .open = before.drain {
                let isAsked = wish == .stopUnlessObjected
                #expect(after.drain == .closing(isAsked ? .asking : .ordered(isChecked: false)), comment)
                #expect(order == (isAsked ? .check(stands: false) : .stop), comment)
            } else {
                #expect(after == before && order == nil, comment)
            }
        }
    }

    private func checkLook(
        _ before: StopStatus, _ after: StopStatus, _ standing: Standing, _ sender: String?, _ comment: Comment
    ) {
        #expect(before.isLifting || !after.isLifting, comment)
        if standing.isOpen(of: before.isStanding) {
            #expect(after == before, comment)
        } else if !standing.isStanding(before: before.isStanding) {
            #expect(after.isStanding == before.drain.isUnderWay && after.others == nil, comment)
            #expect(after.course == before.course, comment)
            #expect(after.drain.isUnderWay || [.none, .stopping].contains(after.enforcement), comment)
        } else {
            // A stop that the daemon neither holds nor has ordered is foreign; it does not complete an order under way.
            let isConcerned = after.isOurs || after.enforcement == .continuing
            #expect(isConcerned || after.isStanding && after.others != nil, comment)
            #expect(
                after.isOurs == before.isOurs && after.course == before.course
                    || before.enforcement == .continuing, comment)
            if sender != nil, standing.signal != .none {
                #expect(after.others == sender && after.isSignalledByOthers && after.isStanding, comment)
            } else if after.enforcement == .stopped, standing.freeze?.isOurs == true {
                #expect((after.others != nil) == (standing.signal != .none), comment)
            }
            if standing.freeze?.isOurs == false, after.enforcement != .continuing {
                #expect(after.others != nil, comment)
                #expect(standing.signal != .none || !after.isSignalledByOthers, comment)
            }
            // A process that has thawed the cgroup no longer holds it.
            if standing.freeze == nil, after.enforcement == .stopped, !before.isSignalledByOthers,
                sender == nil
            {
                #expect(after.others == nil, comment)
            }
        }
    }

    /// These events lead to the values that `phases` contains.
    private static let reaching: [Event] =
        ["", "x"].map { .looked(Standing(signal: .stopped), sender: $0) }
        + ["x"].map { .looked(Standing(signal: .pending, freeze: freeze(false, true)), sender: $0) }
        + [.drainDue(10), .drainBegan(until: 20)]

    @Test(
        "after every history of holds, looks, foreign stops, freezes and late orders the process is as held",
        arguments: [false, true])
    func everyHistory(byFreezer: Bool) {
        var known: Set<World> = [World(isByFreezer: byFreezer)]
        var new = Array(known)
        var atRest = 0
        while let world = new.popLast() {
            for move in World.Move.allCases {
                var next = world
                next.make(move)
                if known.insert(next).inserted { new.append(next) }
            }
            // Nothing else happens to it: it comes to rest in the right state.
            var end = world
            var moves = 0
            while let move = end.due, moves < 20 {
                end.make(move)
                moves += 1
            }
            if end.due != nil { Issue.record("no rest: \(world)") }
            if !end.isRight { Issue.record("\(world) comes to rest as \(end)") }
            if world.due == nil { atRest += 1 }
        }
        print("stop status: \(known.count) worlds, \(atRest) of them at rest")
        #expect(known.count > 100 && atRest > 4)
    }

    /// One process in its own cgroup, another process that stops, continues, freezes and thaws it, a hold, and the
    /// orders that are not carried out yet.
    private struct World: Hashable {
        let isByFreezer: Bool
        var phase = Phase()
        var wish = StopStatus.Wish.run
        /// The process is in state T, or SIGSTOP is pending beneath a freeze. Stops are not counted: one SIGCONT ends
        /// them all.
        var isStopped = false
        /// Another process has sent SIGSTOP since the last SIGCONT.
        var isForeignStop = false
        var isFrozen = false
        /// The cgroup was not frozen when the daemon froze it.
        var isFreezeOurs = false
        /// The daemon has sent SIGSTOP, perhaps besides others.
        var isStopOurs = false
        /// Another process has sent SIGSTOP, and the hint about it is on its way.
        var isHinted = false
        var order: StopStatus.Order?
        var isLifting = false
        /// The daemon is checking for objections to the stop.
        var isBeingChecked = false

        init(isByFreezer: Bool) { self.isByFreezer = isByFreezer }

        enum Move: CaseIterable {
            case hold, decide, release, resume, foreignStop, foreignContinue, foreignFreeze, foreignThaw
            case carryOut, lift, hint, lostHint, look, clear, object
        }

        private var status: StopStatus { StopStatus(phase: phase) }

        private var standing: Standing {
            Standing(
                signal: !isStopped ? .none : isFrozen ? .pending : .stopped,
                freeze: isFrozen ? Standing.Freeze(cgroup: "c", isOurs: isFreezeOurs, isComplete: true) : nil)
        }

        /// What happens by itself.
        var due: Move? {
            if order != nil { return .carryOut }
            if isLifting { return .lift }
            if isBeingChecked { return .clear }
            if isHinted { return .hint }
            return StopStatus.next(phase, .looked(standing, sender: nil)).0 == phase ? nil : .look
        }

        var isRight: Bool {
            let stands = isStopped || isFrozen
            if wish != .run { return stands && status.enforcement == .stopped }
            // A SIGCONT between the order to stop and the daemon's SIGSTOP goes unnoticed: the stop still counts as its
            // sender's.
            let isForeign =
                isForeignStop || isFrozen && !isFreezeOurs
                || !isByFreezer && isStopped && status.isSignalledByOthers
            return status.enforcement == .none && stands == status.isStanding && stands == isForeign
                && stands == (status.others != nil)
        }

        mutating func make(_ move: Move) {
            switch move {
            case .hold: wish = .stop
            case .decide: wish = .stopUnlessObjected
            case .release: wish = .run
            case .resume:
                wish = .run
                let continues = status.others != nil || status.isNobodys
                isLifting = isLifting || continues
                take(.resumed(lifts: continues || status.enforcement != .none))
            case .foreignStop: (isStopped, isForeignStop, isHinted) = (true, true, true)
            case .lostHint: isHinted = false
            case .foreignContinue:
                (isStopped, isForeignStop, isStopOurs, isHinted) = (false, false, false, false)
            case .foreignFreeze: isFrozen = true
            case .foreignThaw: isFrozen = false
            case .carryOut:
                guard let order else { return }
                self.order = nil
                carryOut(order)
            case .lift:
                guard isLifting else { return }
                isLifting = false
                endForeignStop()
                tellResumed()
            case .hint:
                guard isHinted else { return }
                isHinted = false
                take(.looked(standing, sender: "x"))
            case .look:
                take(.looked(standing, sender: nil))
            case .clear:
                guard isBeingChecked else { return }
                isBeingChecked = false
                take(.unobjected(stands: isStopped || isFrozen))
            case .object:
                guard isBeingChecked else { return }
                isBeingChecked = false
                wish = .run
                take(.gaveWay)
            }
            take(.wanted(wish, .request))
        }

        private mutating func carryOut(_ order: StopStatus.Order) {
            switch order {
            case .check: break
            case .stop:
                if isByFreezer {
                    if !isFrozen { (isFrozen, isFreezeOurs) = (true, true) }
                } else if !isStopped {
                    (isStopped, isStopOurs) = (true, true)
                }
                take(.stopCompleted)
            case .resume:
                takeBack(status.isSignalledByOthers)
                // How the other holder's stop ends is observed separately.
                if status.isSignalledByOthers { return }
                // The foreign stop was removed from the status after the process was stopped, or was never seen: the
                // rest of that `Resume`.
                if status.isLifting { endForeignStop() }
                tellResumed()
            }
        }

        /// A SIGSTOP that follows the daemon's stays pending, so the daemon sees it.
        private mutating func takeBack(_ sparingMain: Bool) {
            if isFreezeOurs { (isFrozen, isFreezeOurs) = (false, false) }
            if isStopOurs, !sparingMain, !isForeignStop { isStopped = false }
            isStopOurs = false
        }

        private mutating func endForeignStop() {
            if !isFreezeOurs { isFrozen = false }
            (isStopped, isForeignStop, isStopOurs) = (false, false, false)
        }

        /// As long as an order is under way, a stop may be the daemon's own.
        private mutating func tellResumed() {
            let isDone = order == nil && !isLifting
            take(isDone ? .resumeCompleted(standing) : .looked(standing, sender: nil))
        }

        private mutating func take(_ event: Event) {
            let (next, order) = StopStatus.next(phase, event)
            phase = next
            switch order {
            case .check?: isBeingChecked = true
            case .resume?, .stop?: (self.order, isBeingChecked) = (order, false)
            case nil: break
            }
        }
    }
}

extension StopStatus {
    /// The daemon's stop is under way or complete.
    fileprivate var isOurs: Bool { course != nil || enforcement == .stopped }

    fileprivate var course: Course? { phase.course }

    fileprivate func taking(_ event: Event) -> StopStatus {
        var next = self
        _ = next.take(event, at: 0)
        return next
    }
}

import AppStateContract
import Testing

@testable import LifeCycle

/// The table of stops: every phase with every event, and every history of a small world until it comes to rest.
@Suite("Stop status")
struct StopStatusTests {
    typealias Phase = StopStatus.Phase
    typealias Event = StopStatus.Event

    private static let reasons: [StateChangeReason] = [.request, .policy]
    private static let foreign: [ForeignStop] = [
        .absent, .unknown, ForeignStop(sender: "x"), ForeignStop(cgroup: "c"),
        ForeignStop(sender: "x", cgroup: "c"),
    ]
    private static let seen: [ForeignStop?] = [nil] + foreign
    private static let quiet: [ForeignStop?] = [nil, .absent]
    private static let progresses: [StopStatus.Progress] = [
        .checkingBefore, .ordered(isChecked: false), .ordered(isChecked: true), .checkingAfter,
    ]
    private static let drains: [StopStatus.Drain] =
        [.none, .due(at: 10), .open(until: 20)] + progresses.map { .closing($0) }
    private static let requirements: [StopStatus.Requirement] = [.run, .stopUnlessObjected, .stop]

    static let phases: [Phase] = seen.map { Phase(seen: $0) } + reasons.flatMap(ordered)

    private static func ordered(_ cause: StateChangeReason) -> [Phase] {
        var phases: [Phase] = []
        for progress in progresses {
            phases += seen.map { Phase(seen: $0, own: .stopping(progress, lifts: false, cause)) }
            // While a foreign stop is being lifted, no other process is known to want it.
            phases += quiet.map { Phase(seen: $0, own: .stopping(progress, lifts: true, cause)) }
        }
        for flag in [true, false] {
            phases += quiet.map { Phase(seen: $0, own: .continuing(lifts: flag, cause)) }
        }
        for foreign in foreign {
            phases += drains.map { Phase(seen: foreign, own: .held($0, cause)) }
        }
        return phases
    }

    private static let stopReader: [StopReading] = [StopReading.Signal.none, .pending, .stopped].flatMap {
        signal in
        [nil, freeze(true, true), freeze(true, false), freeze(false, true), freeze(false, false)]
            .map { StopReading(signal: signal, freeze: $0) }
    }

    private static func freeze(_ isOurs: Bool, _ isComplete: Bool) -> StopReading.Freeze {
        StopReading.Freeze(cgroup: "c", isOurs: isOurs, isComplete: isComplete)
    }

    static let events: [Event] = {
        var events: [Event] = [.stopCompleted, .stopAbandoned]
        for reading in stopReader {
            events += [nil, "y"].map { .observed(reading, sender: $0) }
            events.append(.resumeCompleted(reading))
        }
        for flag in [true, false] {
            events += [.unobjected(isStopped: flag), .resumed(lifts: flag)]
            events += [true, false].map { .restored(isHeld: flag, isSignalled: $0) }
        }
        for requirement in requirements {
            events += reasons.map { .wanted(requirement, $0) }
            events.append(.drainEnded(requirement))
        }
        return events + [.drainDue(nil), .drainDue(30), .drainBegan(until: 40)]
    }()

    private func check(_ before: StopStatus, _ event: Event) {
        var after = before
        let order = after.handle(event, at: 0)
        let comment: Comment = "\(before.phase), \(event): \(after.phase), \(String(describing: order))"
        let isOurs = before.isOurs
        let staysOurs = after.isOurs
        #expect(after.foreignHolder == nil || after.isStopped, comment)
        #expect(!after.isLifting || after.foreignHolder == nil, comment)
        switch event {
        case .observed(let reading, let sender):
            #expect(order == nil && after == after.handling(event), comment)
            checkObservation(before, after, reading, sender, comment)
        case .stopCompleted:
            switch before.progress {
            case .checkingBefore?, .checkingAfter?:
                #expect(order == nil && after == before, comment)
            case .ordered(isChecked: true)?:
                #expect(order == .check(isStopped: true) && after.progress == .checkingAfter, comment)
                #expect(
                    after.isStopped == before.isStopped && after.foreignHolder == before.foreignHolder,
                    comment)
            case .ordered(isChecked: false)?, nil:
                #expect(order == nil && staysOurs == isOurs && after.progress == nil, comment)
                #expect(after.foreignHolder == before.foreignHolder || before.enforcement == .none, comment)
                #expect(after.isStopped || before.enforcement == .continuing, comment)
            }
        case .unobjected(let isStopped):
            #expect(after.foreignHolder == before.foreignHolder && staysOurs == isOurs, comment)
            if before.progress == .checkingBefore || before.progress == .checkingAfter && !isStopped {
                #expect(order == .stop && after.progress == .ordered(isChecked: true), comment)
            } else if before.progress == .checkingAfter {
                #expect(order == nil && after.enforcement == .stopped && after.progress == nil, comment)
            } else {
                #expect(order == nil && after == before, comment)
            }
        case .resumeCompleted(let reading):
            #expect(order == nil, comment)
            if before.enforcement == .continuing, !reading.isUndecided(before: before.isStopped) {
                #expect(after.enforcement == .none, comment)
                #expect(after.isStopped == reading.isStopped(before: true), comment)
                #expect((after.foreignHolder != nil) == after.isStopped, comment)
            } else {
                #expect(after.phase == before.handling(.observed(reading, sender: nil)).phase, comment)
            }
        case .wanted(let requirement, let cause):
            #expect(staysOurs == (requirement != .run) && after == after.handling(event), comment)
            #expect(
                after.isStopped == before.isStopped && after.foreignHolder == before.foreignHolder, comment)
            if requirement == .run, before.progress == .checkingBefore, before.enforcement == .none {
                #expect(order == .resume && after.phase == Phase(), comment)
            } else if requirement == .run {
                #expect(order == (isOurs ? .resume : nil), comment)
            } else if !isOurs {
                #expect(order == (requirement == .stop ? .stop : .check(isStopped: false)), comment)
                #expect(
                    after.progress == (requirement == .stop ? .ordered(isChecked: false) : .checkingBefore),
                    comment)
            } else {
                let isBeingChecked = before.progress == .checkingBefore || before.progress == .checkingAfter
                #expect(order == (requirement == .stop && isBeingChecked ? .stop : nil), comment)
                #expect((after.progress == nil) == (before.progress == nil), comment)
                #expect(
                    requirement != .stop || [nil, .ordered(isChecked: false)].contains(after.progress),
                    comment)
                #expect(requirement == .stop || after.progress != .ordered(isChecked: false), comment)
            }
            #expect(isOurs || order == nil || after.cause == cause || after.enforcement == .none, comment)
        case .resumed(let lifts):
            #expect(order == (lifts && isOurs ? .resume : nil), comment)
            #expect(after.foreignHolder == nil && after.isStopped == before.isStopped, comment)
            #expect(
                !lifts || after.isLifting || before.enforcement == .continuing || before == after, comment)
            #expect(lifts || after.enforcement == before.enforcement, comment)
        case .stopAbandoned:
            let isDone = [.stopped, .continuing].contains(before.enforcement)
            #expect(order == (isDone ? nil : .resume) && (!isDone || after == before), comment)
            #expect(after.isStopped == before.isStopped, comment)
            #expect(after.foreignHolder == before.foreignHolder && after.progress == nil || isDone, comment)
        case .restored(let isHeld, let isSignalled):
            #expect(order == nil && after.isStopped == before.isStopped, comment)
            let isDone = before.enforcement == .none && before.progress == nil && !isHeld
            #expect(!(isSignalled || isDone) || after.foreignHolder == before.foreignHolder, comment)
            #expect(isSignalled || isDone || !after.isSignalledByOther, comment)
            #expect(after.enforcement == (isDone || isHeld ? .none : .stopping), comment)
        case .drainDue(let time):
            #expect(order == nil && after.enforcement == before.enforcement, comment)
            #expect(after.drain.isUnderWay == before.drain.isUnderWay, comment)
            let mayDrain = before.enforcement == .stopped && before.foreignHolder == nil && time != nil
            #expect((after.drain != .none) == (mayDrain || before.drain.isUnderWay), comment)
        case .drainBegan(let end):
            if case .due = before.drain {
                #expect(after.drain == .open(until: end) && order == nil, comment)
            } else {
                #expect(after == before && order == nil, comment)
            }
        case .drainEnded(let requirement):
            if case .open = before.drain {
                let isAsked = requirement == .stopUnlessObjected
                #expect(
                    after.drain == .closing(isAsked ? .checkingBefore : .ordered(isChecked: false)), comment)
                #expect(order == (isAsked ? .check(isStopped: false) : .stop), comment)
            } else {
                #expect(after == before && order == nil, comment)
            }
        }
    }

    private func checkObservation(
        _ before: StopStatus, _ after: StopStatus, _ reading: StopReading, _ sender: String?,
        _ comment: Comment
    ) {
        #expect(before.isLifting || !after.isLifting, comment)
        if reading.isUndecided(before: before.isStopped) {
            #expect(after == before, comment)
        } else if !reading.isStopped(before: before.isStopped) {
            #expect(after.isStopped == before.drain.isUnderWay && after.foreignHolder == nil, comment)
            #expect(after.progress == before.progress, comment)
            #expect(after.drain.isUnderWay || [.none, .stopping].contains(after.enforcement), comment)
        } else {
            // A stop that the daemon neither holds nor has ordered is foreign; it does not complete an order under way.
            let isRelevant = after.isOurs || after.enforcement == .continuing
            #expect(isRelevant || after.isStopped && after.foreignHolder != nil, comment)
            #expect(
                after.isOurs == before.isOurs && after.progress == before.progress
                    || before.enforcement == .continuing, comment)
            if sender != nil, reading.signal != .none {
                #expect(after.foreignHolder == sender && after.isSignalledByOther && after.isStopped, comment)
            } else if after.enforcement == .stopped, reading.freeze?.isOurs == true {
                #expect((after.foreignHolder != nil) == (reading.signal != .none), comment)
            }
            if reading.freeze?.isOurs == false, after.enforcement != .continuing {
                #expect(after.foreignHolder != nil, comment)
                #expect(reading.signal != .none || !after.isSignalledByOther, comment)
            }
            // A process that has thawed the cgroup no longer holds it.
            if reading.freeze == nil, after.enforcement == .stopped, !before.isSignalledByOther,
                sender == nil
            {
                #expect(after.foreignHolder == nil, comment)
            }
        }
    }

    /// These events lead to the values that `phases` contains.
    private static let reaching: [Event] =
        ["", "x"].map { .observed(StopReading(signal: .stopped), sender: $0) }
        + ["x"].map { .observed(StopReading(signal: .pending, freeze: freeze(false, true)), sender: $0) }
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
        var requirement = StopStatus.Requirement.run
        /// The process is in state T, or SIGSTOP is pending beneath a freeze. Stops are not counted: one SIGCONT ends
        /// them all.
        var isStopped = false
        /// Another process has sent SIGSTOP since the last SIGCONT.
        var isForeignStop = false
        var isFrozen = false
        /// The cgroup was not frozen when the daemon froze it.
        var isFreezeOurs = false
        /// The daemon has sent SIGSTOP, perhaps besides foreign.
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

        private var reading: StopReading {
            StopReading(
                signal: !isStopped ? .none : isFrozen ? .pending : .stopped,
                freeze: isFrozen
                    ? StopReading.Freeze(cgroup: "c", isOurs: isFreezeOurs, isComplete: true) : nil)
        }

        /// What happens by itself.
        var due: Move? {
            if order != nil { return .carryOut }
            if isLifting { return .lift }
            if isBeingChecked { return .clear }
            if isHinted { return .hint }
            return StopStatus.next(phase, .observed(reading, sender: nil)).0 == phase ? nil : .look
        }

        var isRight: Bool {
            let isHalted = isStopped || isFrozen
            if requirement != .run { return isHalted && status.enforcement == .stopped }
            // A SIGCONT between the order to stop and the daemon's SIGSTOP goes unnoticed: the stop still counts as its
            // sender's.
            let isForeign =
                isForeignStop || isFrozen && !isFreezeOurs
                || !isByFreezer && isStopped && status.isSignalledByOther
            return status.enforcement == .none && isHalted == status.isStopped && isHalted == isForeign
                && isHalted == (status.foreignHolder != nil)
        }

        mutating func make(_ move: Move) {
            switch move {
            case .hold: requirement = .stop
            case .decide: requirement = .stopUnlessObjected
            case .release: requirement = .run
            case .resume:
                requirement = .run
                let continues = status.foreignHolder != nil || status.isUnclaimed
                isLifting = isLifting || continues
                handle(.resumed(lifts: continues || status.enforcement != .none))
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
                reportResumed()
            case .hint:
                guard isHinted else { return }
                isHinted = false
                handle(.observed(reading, sender: "x"))
            case .look:
                handle(.observed(reading, sender: nil))
            case .clear:
                guard isBeingChecked else { return }
                isBeingChecked = false
                handle(.unobjected(isStopped: isStopped || isFrozen))
            case .object:
                guard isBeingChecked else { return }
                isBeingChecked = false
                requirement = .run
                handle(.stopAbandoned)
            }
            handle(.wanted(requirement, .request))
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
                handle(.stopCompleted)
            case .resume:
                undoStop(status.isSignalledByOther)
                // How the other holder's stop ends is observed separately.
                if status.isSignalledByOther { return }
                // The foreign stop was removed from the status after the process was stopped, or was never seen: the
                // rest of that `Resume`.
                if status.isLifting { endForeignStop() }
                reportResumed()
            }
        }

        /// A SIGSTOP that follows the daemon's stays pending, so the daemon sees it.
        private mutating func undoStop(_ sparingMain: Bool) {
            if isFreezeOurs { (isFrozen, isFreezeOurs) = (false, false) }
            if isStopOurs, !sparingMain, !isForeignStop { isStopped = false }
            isStopOurs = false
        }

        private mutating func endForeignStop() {
            if !isFreezeOurs { isFrozen = false }
            (isStopped, isForeignStop, isStopOurs) = (false, false, false)
        }

        /// As long as an order is under way, a stop may be the daemon's own.
        private mutating func reportResumed() {
            let isDone = order == nil && !isLifting
            handle(isDone ? .resumeCompleted(reading) : .observed(reading, sender: nil))
        }

        private mutating func handle(_ event: Event) {
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
    fileprivate var isOurs: Bool { progress != nil || enforcement == .stopped }

    fileprivate var progress: Progress? { phase.progress }

    fileprivate func handling(_ event: Event) -> StopStatus {
        var next = self
        _ = next.handle(event, at: 0)
        return next
    }
}

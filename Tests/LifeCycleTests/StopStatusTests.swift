import AppStateContract
import Testing

@testable import LifeCycle

/// Every history of a small world until it comes to rest.
@Suite("Stop status")
struct StopStatusTests {
    typealias Phase = StopStatus.Phase
    typealias Event = StopStatus.Event

    @Test(
        "after every history of holds, checks, foreign stops, freezes and late orders the process is as held",
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
            case carryOut, lift, hint, lostHint, read, clear, object
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
            return StopStatus.next(phase, .observed(reading, sender: nil)).0 == phase ? nil : .read
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
            case .read:
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

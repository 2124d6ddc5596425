import AppStateContract
import Testing

@testable import LifeCycle

/// All events that can happen in between, in every order of three.
@Suite("Reclaim, in every order")
struct ReclaimPermutationTests {
    private static let second: Microseconds = 1_000_000

    enum Event: CaseIterable {
        case spared, continued, focus, unfocus, resume, exit, otherExit, reusedExit, unregister, forceQuit
        case stuck, observe, enforce, vanish, appear, ample, short
    }

    private static let triples: [[Event]] = {
        var triples: [[Event]] = []
        for one in Event.allCases {
            for two in Event.allCases where two != one {
                for three in Event.allCases where three != one && three != two {
                    triples.append([one, two, three])
                }
            }
        }
        return triples
    }()

    private func happen(_ event: Event, to victim: ApplicationNumber, _ desk: inout PressureDesk) throws {
        let lives = desk.machine.applications[victim] != nil
        let process = try desk.process(victim).lineage[0]
        switch event {
        case .spared: desk.take(.spared(victim, "it runs again"))
        case .continued: desk.take(.continued(victim))
        case .focus: try desk.focus(victim)
        case .unfocus: try desk.desk.focus(nil)
        case .resume: if lives { try desk.perform(.resume(victim, holder: "uid:0")) }
        case .exit: try desk.exit(victim)
        case .otherExit:
            let others = desk.machine.applications.keys.filter { $0 != victim }
            if let other = others.min() { try desk.exit(other) }
        case .reusedExit:
            desk.take(.exited(ProcessID(pid: process.pid, startTime: process.startTime + 1), .killed))
        case .unregister: if lives { try desk.perform(.unregister(victim)) }
        case .forceQuit: if lives { try desk.perform(.terminate(victim, force: true)) }
        case .stuck: desk.pass(1_300_000)
        case .observe: desk.configure { $0.mode = .observe }
        case .enforce: desk.configure { $0.mode = .enforce }
        case .vanish: desk.watch([])
        case .appear:
            desk.watch([PressureDesk.everybody])
            desk.trigger(.critical)
        case .ample: desk.set(PressureDesk.ample)
        case .short: desk.runShort()
        }
    }

    @Test(
        "one end at a time, no effects on gone or active applications, and nothing is left over",
        arguments: [true, false])
    func everyOrder(_ isSuspended: Bool) throws {
        for events in Self.triples {
            var desk = PressureDesk()
            let victim =
                isSuspended ? try desk.held(60 << 20) : try desk.background(60 << 20) { $0.delegate = ":1.5" }
            if isSuspended {
                _ = try desk.stopped()
            } else {
                try desk.perform(.finishLaunching(victim, by: ":1.5"))
            }
            _ = try desk.background()
            desk.forget()
            desk.runShort()
            #expect(desk.machine.pressure.victim?.number == victim)
            for event in events {
                try happen(event, to: victim, &desk)
                check(desk, events)
            }
            desk.setAll(PressureDesk.ample)
            desk.pass(30 * Self.second)
            check(desk, events)
            let pressure = desk.machine.pressure
            #expect(pressure.victim == nil && pressure.level == .normal && !pressure.isEventOpen, "\(events)")
            #expect(
                pressure.excluded.isEmpty && pressure.sizes.isEmpty && pressure.kills.isEmpty, "\(events)")
            #expect(pressure.promised.isEmpty && desk.isIdle, "\(events)")
        }
    }

    /// Checks everything that was ordered since the choice, in its order.
    private func check(_ desk: PressureDesk, _ events: [Event]) {
        var gone: Set<ApplicationNumber> = []
        var awaited: ApplicationNumber?
        var states: [ApplicationNumber: LifeCycleState] = [:]
        for effect in desk.effects {
            switch effect {
            case .reclaim(let number), .willReclaim(let number):
                #expect(awaited == nil, "\(number) before \(String(describing: awaited)): \(events)")
                #expect(!gone.contains(number), "\(number) is gone: \(events)")
                awaited = number
            case .kill(let number):
                #expect(!gone.contains(number), "\(number) is gone: \(events)")
                #expect(states[number] != .active || events.contains(.forceQuit), "\(number): \(events)")
            case .announce(let number, let announcement, _):
                if let edge = announcement.edge { states[number] = edge.to }
            case .notice(let number, let notice):
                #expect(!gone.contains(number), "\(notice) of \(number), gone: \(events)")
                switch notice {
                case .spared, .reclaimStuck: if awaited == number { awaited = nil }
                default: break
                }
            case .removed(let number, _):
                gone.insert(number)
                if awaited == number { awaited = nil }
            default: break
            }
        }
    }
}

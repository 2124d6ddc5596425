import AppStateContract
import Testing

@testable import LifeCycle

/// Holds are counted by reason and holder: each holder releases only its own hold, in whatever order.
@Suite("Orders of holds")
struct HoldOrderTests {
    private enum Step: CaseIterable {
        case takeA, dropA, takeB, dropB, stop, proceed, focus
    }

    /// A machine whose orders are carried out at once, together with the expected state.
    private struct Scene {
        var machine = Machine()
        let number = ApplicationNumber(1)
        let process = ProcessID(pid: 100, startTime: 7)
        var now: Microseconds = 1_000_000
        var stands = false
        // The expected state.
        var policy = false
        var requests: Set<String> = []
        var foreign = false

        init(suspended byPolicy: Bool) throws {
            var settings = Settings()
            settings.backgroundGrace = byPolicy ? 1 : nil
            settings.drainEvery = nil
            machine = Machine(settings: settings)
            guard let id = ApplicationID("org.example.Editor") else { return }
            var registration = Registration(id: id, process: process, user: 1000, session: .user(1000))
            registration.suspension = .automatic
            try carryOut(machine.perform(.register(registration), at: now).effects)
            now += 10
            carryOut(machine.handle(.timePassed, at: now))
            policy = byPolicy
        }

        mutating func take(_ step: Step) throws {
            now += 2_000_000
            switch step {
            case .takeA, .takeB:
                let holder = step == .takeA ? "a" : "b"
                try carryOut(machine.perform(.suspend(number, holder: holder), at: now).effects)
                requests.insert(holder)
            case .dropA, .dropB:
                let holder = step == .dropA ? "a" : "b"
                try carryOut(machine.perform(.resume(number, holder: holder), at: now).effects)
                requests.remove(holder)
                // A user's Resume overrides the daemon's own decision and a foreign stop, but not another user's
                // request.
                policy = false
                foreign = false
            case .stop:
                stands = true
                carryOut(machine.handle(.stopped(number, holder: "pid 7"), at: now))
                foreign = true
            case .proceed:
                stands = false
                foreign = false
                carryOut(machine.handle(.continued(number), at: now))
            case .focus:
                let reported = ReportedProcess(lineage: [process], user: 1000, session: .user(1000))
                let reporter = ReporterIdentity(connection: ":1.9", user: 1000, session: .user(1000))
                try carryOut(machine.perform(.setFocus(reported, reporter), at: now).effects)
                policy = false
            }
        }

        private mutating func carryOut(_ effects: [Effect]) {
            for effect in effects {
                switch effect {
                case .check:
                    carryOut(machine.handle(.checked(number, .clear(stands: true)), at: now))
                case .stop:
                    stands = true
                    carryOut(machine.handle(.stopped(number, holder: nil), at: now))
                case .resume(_, let sparingMain) where !sparingMain:
                    stands = false
                    carryOut(machine.handle(.continued(number), at: now))
                case .continueForeign:
                    stands = false
                    carryOut(machine.handle(.continued(number), at: now))
                default: break
                }
            }
        }

        var isRight: Bool {
            guard let application = machine.applications[number] else { return false }
            var expected = Set(requests.map { Application.Hold(reason: .request, holder: $0) })
            if policy { expected.insert(Application.Hold(reason: .policy, holder: "appstated")) }
            let isHeld = policy || !requests.isEmpty || foreign
            return Set(application.holds) == expected && (application.stop.others != nil) == foreign
                && stands == isHeld && (application.state == .suspended) == isHeld
        }
    }

    @Test(
        "every order of two requests, a foreign stop and a focus leaves exactly the expected holds",
        arguments: [false, true])
    func everyOrder(policy: Bool) throws {
        var count = 0
        try Self.orders(of: Step.allCases, after: []) { order in
            var scene = try Scene(suspended: policy)
            for (index, step) in order.enumerated() {
                // After its grace period an application without holds is suspended by policy again.
                if scene.machine.applications[scene.number]?.holds.isEmpty == true, policy, index > 0,
                    !scene.stands
                {
                    break
                }
                try scene.take(step)
                guard scene.isRight else {
                    let record = scene.machine.applications[scene.number]?.record().lines.map {
                        "\($0.key) \($0.fields.joined(separator: " "))"
                    }
                    Issue.record("\(order.prefix(index + 1)): \(record ?? [])")
                    return
                }
            }
            count += 1
        }
        // 7! orders; each of three pairs is in the right order in half of them.
        #expect(count == 630)
    }

    /// All orders in which each hold is taken before it is dropped.
    private static func orders(
        of steps: [Step], after taken: [Step], _ body: ([Step]) throws -> Void
    ) throws {
        if taken.count == steps.count { return try body(taken) }
        for step in steps where !taken.contains(step) {
            switch step {
            case .dropA where !taken.contains(.takeA), .dropB where !taken.contains(.takeB),
                .proceed where !taken.contains(.stop):
                continue
            default: try orders(of: steps, after: taken + [step], body)
            }
        }
    }
}

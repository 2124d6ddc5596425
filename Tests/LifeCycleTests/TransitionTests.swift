import AppStateContract
import TestSupport
import Testing

@testable import LifeCycle

/// The transition table, exhaustively.
@Suite("Transitions")
struct TransitionTests {
    @Test("exactly the contract's edges are legal")
    func edges() {
        let legal: Set<String> = [
            "not-running→inactive", "not-running→background", "inactive→active", "active→inactive",
            "inactive→background", "background→inactive", "background→suspended", "suspended→background",
            "inactive→not-running", "active→not-running", "background→not-running", "suspended→not-running",
        ]
        for from in LifeCycleState.allCases {
            for to in LifeCycleState.allCases {
                #expect(
                    Edge(from, to).isLegal == legal.contains(Edge(from, to).description), "\(Edge(from, to))")
            }
        }
    }

    @Test("every walk consists of legal, connected edges, ends at its target and is the shortest")
    func walks() {
        for from in LifeCycleState.allCases {
            let distances = Self.distances(from: from)
            for to in LifeCycleState.allCases {
                let walk = from.walk(to: to)
                #expect(walk.filter { !$0.isLegal }.isEmpty, "\(walk)")
                #expect(walk.dropLast().map(\.to) == walk.dropFirst().map(\.from), "\(walk)")
                #expect(walk.first.map { $0.from == from } ?? (from == to))
                #expect(walk.last.map { $0.to == to } ?? (from == to))
                // A running application never passes through not-running.
                #expect(!walk.dropLast().contains { $0.to == .notRunning })
                #expect(walk.count == distances[to], "\(from) to \(to): \(walk)")
            }
        }
    }

    /// Breadth-first, never through not-running.
    private static func distances(from: LifeCycleState) -> [LifeCycleState: Int] {
        var distances = [from: 0]
        var queue = [from]
        while !queue.isEmpty {
            let state = queue.removeFirst()
            if state == .notRunning && state != from { continue }
            for next in LifeCycleState.allCases where Edge(state, next).isLegal && distances[next] == nil {
                distances[next] = (distances[state] ?? 0) + 1
                queue.append(next)
            }
        }
        return distances
    }

    @Test(
        "between any two states subscribers receive each edge with its signals, in order",
        arguments: [LifeCycleState.inactive, .active, .background, .suspended],
        [LifeCycleState.inactive, .active, .background, .suspended])
    func signals(from: LifeCycleState, to: LifeCycleState) throws {
        var stage = try Stage.launched()
        try stage.bring(to: from)
        #expect(stage.state == from)
        stage.forget()
        if from == .suspended && to != .suspended {
            try stage.bring(to: to)
            #expect(stage.words(.all).isEmpty, "a stop by somebody else outlasts what windows do")
            stage.handle(.continued(stage.number))
        } else {
            try stage.bring(to: to)
        }
        #expect(stage.state == to)
        var expected: [String] = []
        for edge in Self.walked(from, to) {
            switch (edge.from, edge.to) {
            case (.background, .inactive): expected += ["WillEnterForeground", edge.description]
            case (.inactive, .active): expected += [edge.description, "DidBecomeActive"]
            case (.active, .inactive): expected += ["WillResignActive", edge.description]
            case (.inactive, .background): expected += [edge.description, "DidEnterBackground"]
            default: expected.append(edge.description)
            }
        }
        #expect(stage.words(.subscribers) == expected)
    }

    /// `bring(to: .inactive)` gives the focus and takes it again, unless the application is stopped.
    private static func walked(_ from: LifeCycleState, _ to: LifeCycleState) -> [Edge] {
        if to == .inactive && from != .suspended {
            return from.walk(to: .active) + LifeCycleState.active.walk(to: .inactive)
        }
        return from.walk(to: to)
    }

    @Test(
        "an end is one edge from every state that its receiver knows",
        arguments: [LifeCycleState.inactive, .active, .background, .suspended])
    func end(from: LifeCycleState) throws {
        var stage = try Stage.launched()
        try stage.bring(to: from)
        stage.forget()
        stage.handle(.exited(stage.process, .crashed))
        #expect(stage.words(.subscribers) == [Edge(from, .notRunning).description])
        #expect(stage.words(.delegate) == [Edge(Application.asAnnounced(from), .notRunning).description])
        #expect(stage.effects.contains(.removed(stage.number, .crashed)))
        #expect(stage.machine.applications.isEmpty)
    }
}

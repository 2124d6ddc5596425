public import AppStateContract

//                         launch, foreground
//      ┌───────────────┐ ─────────────────────▶ ┌──────────┐   focus   ┌────────┐
//      │  not-running  │                        │ inactive │ ◀───────▶ │ active │
//      └───────────────┘ ◀── end, from any      └──────────┘           └────────┘
//              │                                     ▲ │
//              │ launch, background        a window  │ │  none
//              └──────────────────────▶              │ ▼
//                                           ┌────────────┐  stop   ┌───────────┐
//                                           │ background │ ◀─────▶ │ suspended │
//                                           └────────────┘         └───────────┘

extension LifeCycleState {
    /// The next state on the path to `target`; nil if this is the target.
    ///
    /// The path between two states without an edge is walked one edge after the other (docs, § 1).
    public func step(toward target: LifeCycleState) -> LifeCycleState? {
        if self == target { return nil }
        switch (self, target) {
        case (_, .notRunning): return .notRunning
        case (.notRunning, .inactive), (.notRunning, .active): return .inactive
        case (.notRunning, .background), (.notRunning, .suspended): return .background
        case (.inactive, .active): return .active
        case (.inactive, .background), (.inactive, .suspended): return .background
        case (.active, _): return .inactive
        case (.background, .suspended): return .suspended
        case (.background, .inactive), (.background, .active): return .inactive
        case (.suspended, _): return .background
        case (.inactive, .inactive), (.background, .background): return nil
        }
    }

    /// Every edge on the path to `target`, in order.
    public func walk(to target: LifeCycleState) -> [Edge] {
        var edges: [Edge] = []
        var state = self
        while let next = state.step(toward: target) {
            edges.append(Edge(state, next))
            state = next
        }
        return edges
    }
}

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
    /// The next state on the way to `target`; nil when this is the target.
    ///
    /// Two states without an edge between them are walked one edge after the other (docs, § 1).
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

    /// Every edge on the way to `target`, in order.
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

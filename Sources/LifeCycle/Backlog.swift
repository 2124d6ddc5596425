import AppStateContract

/// What a suspended application has missed: at most one of each event, the latest, in the order of
/// their last occurrence (§ 3). Bounded by the number of events there are.
///
/// Of the edges it is told the shortest way from the state that it was told last to the present one, each
/// beside its signal: what came and went in between is nothing to catch up with.
struct Backlog: Equatable, Sendable {
    private var signals: [Announcement] = []
    private var reasons: [Edge: StateChangeReason] = [:]

    mutating func add(_ announcement: Announcement) {
        switch announcement {
        case .stateChanged(let edge, let reason):
            reasons[edge] = reason
        case .didEnterBackground:
            // Serial and deadline of then mean nothing any more.
            replace(.didEnterBackground(serial: 0, deadline: 0))
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .willEnterForeground, .willTerminate, .backgroundTaskWillExpire:
            replace(announcement)
        }
    }

    private mutating func replace(_ announcement: Announcement) {
        signals.removeAll { $0.signal == announcement.signal }
        signals.append(announcement)
    }

    /// What it is told after the thaw, and forgets it.
    ///
    /// - Parameter edges: the way from the state that it knows to the one that it is in.
    mutating func take(along edges: [Edge]) -> [Announcement] {
        var told: [Announcement] = []
        var ahead = edges[...]
        func tell(_ edge: Edge) { told.append(.stateChanged(edge, reasons[edge] ?? .signal)) }
        for announcement in signals {
            let signal = announcement.signal
            if ahead.first?.willSignal == signal, let edge = ahead.popFirst() {
                told.append(announcement)
                tell(edge)
                continue
            }
            if ahead.contains(where: { $0.didSignal == signal }) {
                while let edge = ahead.popFirst() {
                    tell(edge)
                    if edge.didSignal == signal { break }
                }
            }
            told.append(announcement)
        }
        for edge in ahead { tell(edge) }
        signals = []
        reasons = [:]
        return told
    }
}

extension Edge {
    /// The delegate signal that goes before this edge (§ 3).
    var willSignal: ApplicationSignal? {
        switch (from, to) {
        case (.active, .inactive): .willResignActive
        case (.notRunning, .inactive), (.background, .inactive): .willEnterForeground
        default: nil
        }
    }

    /// The delegate signal that goes after this edge (§ 3).
    var didSignal: ApplicationSignal? {
        switch (from, to) {
        case (.inactive, .active): .didBecomeActive
        case (.notRunning, .background), (.inactive, .background): .didEnterBackground
        default: nil
        }
    }
}

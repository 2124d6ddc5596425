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
        var missed = announcement
        switch (announcement.signal, announcement.payload) {
        case (_, .edge(let edge, let reason)):
            reasons[edge] = reason
            return
        case (_, .level):
            // What was short then may not be now (§ 3: to applications that are not suspended).
            return
        case (.didEnterBackground, _), (.protectedDataWillBecomeUnavailable, _):
            // Serial and deadline of then mean nothing any more.
            missed = Announcement(announcement.signal, .until(0, of: 0))
        default:
            break
        }
        signals.removeAll { $0.signal == missed.signal }
        signals.append(missed)
    }

    /// What it is told after the thaw, and forgets it.
    ///
    /// - Parameter edges: the way from the state that it knows to the one that it is in.
    mutating func take(along edges: [Edge]) -> [Announcement] {
        var told: [Announcement] = []
        var ahead = edges[...]
        func tell(_ edge: Edge) {
            told.append(Announcement(.stateChanged, .edge(edge, reasons[edge] ?? .signal)))
        }
        for announcement in signals {
            let signal = announcement.signal
            if ahead.first?.will == signal, let edge = ahead.popFirst() {
                told.append(announcement)
                tell(edge)
                continue
            }
            if ahead.contains(where: { $0.did?.signal == signal }) {
                while let edge = ahead.popFirst() {
                    tell(edge)
                    if edge.did?.signal == signal { break }
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
    /// What its delegate is told before this edge (§ 3).
    var will: ApplicationSignal? {
        switch (from, to) {
        case (.active, .inactive): .willResignActive
        case (.notRunning, .inactive), (.background, .inactive): .willEnterForeground
        default: nil
        }
    }

    /// What its delegate is told after this edge (§ 3), which is awaited nowhere.
    var did: Announcement? {
        switch (from, to) {
        case (.inactive, .active): Announcement(.didBecomeActive)
        case (.notRunning, .background), (.inactive, .background):
            Announcement(.didEnterBackground, .until(0, of: 0))
        default: nil
        }
    }
}

// MARK: Written down

extension Backlog {
    /// The fields of each thing that was missed, in order.
    var fields: [[String]] {
        signals.map(\.fields)
            + reasons.map { ["edge", $0.key.from.rawValue, $0.key.to.rawValue, $0.value.rawValue] }
            .sorted { $0.lexicographicallyPrecedes($1) }
    }

    init(_ record: Record, _ key: String) throws(Record.Flaw) {
        for missed in try record.all(key, { Missed(&$0) }) {
            switch missed {
            case .edge(let edge, let reason): reasons[edge] = reason
            case .signal(let announcement): signals.append(announcement)
            }
        }
    }

    private enum Missed {
        case edge(Edge, StateChangeReason)
        case signal(Announcement)

        init?(_ fields: inout Fields) {
            guard let word = fields.text() else { return nil }
            guard word == "edge" else {
                guard let announcement = Announcement(word, &fields) else { return nil }
                self = .signal(announcement)
                return
            }
            guard let from: LifeCycleState = fields.value(), let to: LifeCycleState = fields.value(),
                let reason: StateChangeReason = fields.value()
            else { return nil }
            self = .edge(Edge(from, to), reason)
        }
    }
}

extension Announcement {
    fileprivate var fields: [String] {
        switch payload {
        case .until(let deadline, let number): [signal.rawValue, String(number), String(deadline)]
        case .cause(let change): [signal.rawValue, change.rawValue]
        case .none, .level, .edge, .event: [signal.rawValue]
        }
    }

    fileprivate init?(_ name: String, _ fields: inout Fields) {
        guard let signal = ApplicationSignal(rawValue: name) else { return nil }
        switch signal {
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .willEnterForeground, .protectedDataDidBecomeAvailable:
            self.init(signal)
        case .didEnterBackground, .willTerminate, .backgroundTaskWillExpire,
            .protectedDataWillBecomeUnavailable:
            guard let number: UInt64 = fields.number(), let deadline: Microseconds = fields.number() else {
                return nil
            }
            self.init(signal, .until(deadline, of: number))
        case .significantTimeChange:
            guard let change: TimeChange = fields.value() else { return nil }
            self.init(signal, .cause(change))
        default: return nil
        }
    }
}

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
        case .protectedDataWillBecomeUnavailable:
            replace(.protectedDataWillBecomeUnavailable(serial: 0, deadline: 0))
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .willEnterForeground, .willTerminate, .backgroundTaskWillExpire,
            .protectedDataDidBecomeAvailable:
            replace(announcement)
        case .didReceiveMemoryWarning:
            // What was short then may not be now (§ 3: to applications that are not suspended).
            break
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
            if ahead.first?.will?.signal == signal, let edge = ahead.popFirst() {
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
    var will: Announcement? {
        switch (from, to) {
        case (.active, .inactive): .willResignActive
        case (.notRunning, .inactive), (.background, .inactive): .willEnterForeground
        default: nil
        }
    }

    /// What its delegate is told after this edge (§ 3), which is awaited nowhere.
    var did: Announcement? {
        switch (from, to) {
        case (.inactive, .active): .didBecomeActive
        case (.notRunning, .background), (.inactive, .background): .didEnterBackground(serial: 0, deadline: 0)
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
        switch self {
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .willEnterForeground, .protectedDataDidBecomeAvailable, .stateChanged:
            [signal.rawValue]
        case .didEnterBackground(let serial, let deadline), .willTerminate(let serial, let deadline),
            .backgroundTaskWillExpire(let serial, let deadline),
            .protectedDataWillBecomeUnavailable(let serial, let deadline):
            [signal.rawValue, String(serial), String(deadline)]
        case .didReceiveMemoryWarning(let level):
            [signal.rawValue, level.rawValue]
        }
    }

    fileprivate init?(_ name: String, _ fields: inout Fields) {
        guard let signal = ApplicationSignal(rawValue: name) else { return nil }
        func numbers(_ fields: inout Fields) -> (UInt64, Microseconds)? {
            guard let serial: UInt64 = fields.number(), let deadline: Microseconds = fields.number() else {
                return nil
            }
            return (serial, deadline)
        }
        switch signal {
        case .willFinishLaunching: self = .willFinishLaunching
        case .didFinishLaunching: self = .didFinishLaunching
        case .didBecomeActive: self = .didBecomeActive
        case .willResignActive: self = .willResignActive
        case .willEnterForeground: self = .willEnterForeground
        case .didEnterBackground:
            guard let (serial, deadline) = numbers(&fields) else { return nil }
            self = .didEnterBackground(serial: serial, deadline: deadline)
        case .willTerminate:
            guard let (serial, deadline) = numbers(&fields) else { return nil }
            self = .willTerminate(serial: serial, deadline: deadline)
        case .protectedDataDidBecomeAvailable: self = .protectedDataDidBecomeAvailable
        case .protectedDataWillBecomeUnavailable:
            guard let (serial, deadline) = numbers(&fields) else { return nil }
            self = .protectedDataWillBecomeUnavailable(serial: serial, deadline: deadline)
        case .backgroundTaskWillExpire:
            guard let (task, deadline) = numbers(&fields) else { return nil }
            self = .backgroundTaskWillExpire(task: task, deadline: deadline)
        default: return nil
        }
    }
}

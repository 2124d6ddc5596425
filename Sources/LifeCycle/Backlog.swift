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

// MARK: Written down

extension Backlog {
    /// One line for each thing that was missed, in order.
    var recorded: [String] {
        signals.map(\.recorded)
            + reasons.map { "edge \($0.key.from.rawValue) \($0.key.to.rawValue) \($0.value.rawValue)" }
            .sorted()
    }

    init(recorded lines: [String]) throws(Record.Flaw) {
        for line in lines {
            var words = Words(line)
            if line.hasPrefix("edge ") {
                _ = words.next()
                guard let from = words.next().flatMap(LifeCycleState.init(rawValue:)),
                    let to = words.next().flatMap(LifeCycleState.init(rawValue:)),
                    let reason = words.next().flatMap(StateChangeReason.init(rawValue:)), words.isAtEnd
                else { throw Record.Flaw("missed", line) }
                reasons[Edge(from, to)] = reason
            } else {
                guard let announcement = Announcement(recorded: &words), words.isAtEnd else {
                    throw Record.Flaw("missed", line)
                }
                signals.append(announcement)
            }
        }
    }
}

extension Announcement {
    fileprivate var recorded: String {
        switch self {
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .willEnterForeground, .protectedDataDidBecomeAvailable, .stateChanged:
            signal.rawValue
        case .didEnterBackground(let serial, let deadline), .willTerminate(let serial, let deadline),
            .backgroundTaskWillExpire(let serial, let deadline),
            .protectedDataWillBecomeUnavailable(let serial, let deadline):
            "\(signal.rawValue) \(serial) \(deadline)"
        case .didReceiveMemoryWarning(let level):
            "\(signal.rawValue) \(level.rawValue)"
        }
    }

    fileprivate init?(recorded words: inout Words) {
        guard let signal = words.next().flatMap(ApplicationSignal.init(rawValue:)) else { return nil }
        func numbers() -> (UInt64, Microseconds)? {
            guard let serial: UInt64 = words.number(), let deadline: Microseconds = words.number() else {
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
            guard let (serial, deadline) = numbers() else { return nil }
            self = .didEnterBackground(serial: serial, deadline: deadline)
        case .willTerminate:
            guard let (serial, deadline) = numbers() else { return nil }
            self = .willTerminate(serial: serial, deadline: deadline)
        case .protectedDataDidBecomeAvailable: self = .protectedDataDidBecomeAvailable
        case .protectedDataWillBecomeUnavailable:
            guard let (serial, deadline) = numbers() else { return nil }
            self = .protectedDataWillBecomeUnavailable(serial: serial, deadline: deadline)
        case .backgroundTaskWillExpire:
            guard let (task, deadline) = numbers() else { return nil }
            self = .backgroundTaskWillExpire(task: task, deadline: deadline)
        default: return nil
        }
    }
}

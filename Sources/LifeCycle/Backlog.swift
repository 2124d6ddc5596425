import AppStateContract

/// The events that a suspended application has missed: of each kind only the latest, in the order of their
/// last occurrence (§ 3). The number of kinds bounds its size.
///
/// Its edges are replaced by the shortest path from the state that was last announced to it to the present one, each
/// edge beside its signal. Changes that were undone in between are not announced.
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
            // Memory that was short then may not be short now (§ 3: to applications that are not suspended).
            return
        case (.didEnterBackground, _), (.protectedDataWillBecomeUnavailable, _):
            // The serial and the deadline of that time are no longer valid.
            missed = Announcement(announcement.signal, .until(.never, of: 0))
        case (_, .urls(let urls, let options)):
            // No URL is dropped, because the sender waits for each to be opened.
            let before = signals.first { $0.signal == missed.signal }
            if case .urls(let earlier, _)? = before?.payload {
                missed = Announcement(missed.signal, .urls(earlier + urls, options: options))
            }
        default:
            break
        }
        signals.removeAll { $0.isReplaced(by: missed) }
        signals.append(missed)
    }

    /// Another delegate reads the current state, but still receives what others have sent.
    mutating func forgetAllButDeliveries() {
        signals.removeAll { !$0.isDelivery }
        reasons = [:]
    }

    /// The items that others sent while they could not be delivered.
    mutating func popDeliveries() -> [Announcement] {
        defer { signals.removeAll(where: \.isDelivery) }
        return signals.filter(\.isDelivery)
    }

    /// The bytes of the waiting items from others, roughly.
    var waitingBytes: Int { signals.reduce(0) { $0 + $1.waitingBytes } }

    /// Removes and returns the signals that are sent to the application once it runs again.
    ///
    /// - Parameters:
    ///   - edges: the path from the state that it knows to its current state.
    ///   - withDeliveries: whether this includes what others have sent; otherwise that keeps waiting.
    mutating func pop(along edges: [Edge], withDeliveries: Bool) -> [Announcement] {
        var told: [Announcement] = []
        var ahead = edges[...]
        let kept = withDeliveries ? [] : signals.filter(\.isDelivery)
        func tell(_ edge: Edge) {
            told.append(Announcement(.stateChanged, .edge(edge, reasons[edge] ?? .signal)))
        }
        for announcement in signals where withDeliveries || !announcement.isDelivery {
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
        signals = kept
        reasons = [:]
        return told
    }
}

extension Edge {
    /// The signal that its delegate is sent before this edge (§ 3).
    var will: ApplicationSignal? {
        switch (from, to) {
        case (.active, .inactive): .willResignActive
        case (.notRunning, .inactive), (.background, .inactive): .willEnterForeground
        default: nil
        }
    }

    /// The signal that its delegate is sent after this edge (§ 3), with no acknowledgement awaited.
    var did: Announcement? {
        switch (from, to) {
        case (.inactive, .active): Announcement(.didBecomeActive)
        case (.notRunning, .background), (.inactive, .background):
            Announcement(.didEnterBackground, .until(.never, of: 0))
        default: nil
        }
    }
}

// MARK: Written down

extension Backlog {
    /// The fields of each missed item, in order.
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
    /// Of each event only the latest is sent; of messages, the latest of each sender and name; of scheduled launches, the
    /// latest of each name; of transfers, each.
    fileprivate func isReplaced(by other: Announcement) -> Bool {
        guard signal == other.signal else { return false }
        if case .message(let sender, let name, _) = payload,
            case .message(let otherSender, let otherName, _) = other.payload
        {
            return sender == otherSender && name == otherName
        }
        if case .scheduled(let name, _) = payload, case .scheduled(let otherName, _) = other.payload {
            return name == otherName
        }
        if case .transfer(let id, _) = payload, case .transfer(let other, _) = other.payload {
            return id == other
        }
        return true
    }

    fileprivate var fields: [String] {
        switch payload {
        case .urls(let urls, let options): [signal.rawValue, String(urls.count)] + urls + options
        case .options(let options): [signal.rawValue] + options
        case .activity(let name, let content), .transfer(let name, let content):
            [signal.rawValue, name] + content
        case .message(let sender, let name, let payload): [signal.rawValue, sender, name] + payload
        case .until(let deadline, let number): [signal.rawValue, String(number), String(deadline)]
        case .scheduled(let name, let task): [signal.rawValue, name, String(task)]
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
        case .openURLs:
            guard let count: Int = fields.number(), count >= 0, count <= fields.rest.count else { return nil }
            let urls = Array(fields.rest.prefix(count))
            fields.rest = fields.rest.dropFirst(count)
            self = .openURLs(urls, options: fields.popRest())
        case .reopen:
            self = .reopen(options: fields.popRest())
        case .continueUserActivity:
            guard let type = fields.text() else { return nil }
            self = .continueUserActivity(type, info: fields.popRest())
        case .backgroundTransferFinished:
            guard let id = fields.text() else { return nil }
            self = .backgroundTransferFinished(id, result: fields.popRest())
        case .messageReceived:
            guard let sender = fields.text(), let name = fields.text() else { return nil }
            self = .messageReceived(from: sender, name: name, payload: fields.popRest())
        case .scheduledLaunchDue:
            guard let name = fields.text(), let task: UInt64 = fields.number() else { return nil }
            self.init(signal, .scheduled(name, task: task))
        default: return nil
        }
    }
}

extension Fields {
    fileprivate mutating func popRest() -> [String] {
        defer { rest = [] }
        return Array(rest)
    }
}

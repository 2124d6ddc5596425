import AppStateContract

/// What a suspended application has missed: at most one of each event, the latest, in the order of
/// their last occurrence (§ 3). Bounded by the number of events there are.
struct Backlog: Equatable, Sendable {
    private var entries: [Announcement] = []

    var isEmpty: Bool { entries.isEmpty }

    mutating func add(_ announcement: Announcement) {
        guard let kept = announcement.forReplay else { return }
        let kind = kept.kind
        entries.removeAll { $0.kind == kind }
        entries.append(kept)
    }

    mutating func take() -> [Announcement] {
        defer { entries = [] }
        return entries
    }
}

extension Announcement {
    fileprivate enum Kind: Hashable {
        case signal(ApplicationSignal)
        case edge(Edge)
    }

    fileprivate var kind: Kind {
        switch self {
        case .stateChanged(let edge, _): .edge(edge)
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .didEnterBackground, .willEnterForeground, .willTerminate, .backgroundTaskWillExpire:
            .signal(signal)
        }
    }

    /// As it is told after the thaw: deadlines and serials of then mean nothing any more, and of
    /// the edges to and from `suspended` the application itself is never told.
    fileprivate var forReplay: Announcement? {
        switch self {
        case .didEnterBackground: .didEnterBackground(serial: 0, deadline: 0)
        case .stateChanged(let edge, _):
            edge.from == .suspended || edge.to == .suspended ? nil : self
        case .willFinishLaunching, .didFinishLaunching, .didBecomeActive, .willResignActive,
            .willEnterForeground, .willTerminate, .backgroundTaskWillExpire:
            self
        }
    }
}

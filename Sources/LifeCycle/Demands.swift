import AppStateContract

/// What an application is needed for.
public enum Need: Sendable {
    /// A program waits for an answer. The application may be suspended again as soon as it has given it.
    case answer
    /// It is to act, mostly because a person has done something. It gets a grace period.
    case act
    /// The same, but it may also be asked to close a window: what a person suspends reads that in a drain.
    case read
    /// It is asked to exit, or to close a window. Every suspension of ours ends.
    case end
}

/// What needed an application of late. Demands of a kind say the same, such as `call by playerctl`; they are a row while
/// each comes within ten seconds of the last one.
///
/// A row has a price: with each demand that resumes the application, the pause until the next one does grows, up to ten
/// times as long as the application ran for the last one. After half a minute a row no longer keeps it running, either.
public struct Demands: Equatable, Sendable {
    struct Row: Equatable, Sendable {
        let what: String
        var count = 0
        /// How many of them have resumed the application.
        var resumed = 0
        let since: Microseconds
        var last: Microseconds
    }

    /// The last one at the end.
    private(set) var rows: [Row] = []
    /// A demand for which the application must wait until the pause is over.
    var postponed: String?
    /// How long the application ran until it was last suspended.
    var ran: Microseconds = 0

    private static let mostRows = 8
    private static let gap: Microseconds = 10_000_000
    private static let free: Microseconds = 30_000_000
    private static let longestPause: Microseconds = 4_000_000
    private static let mostTimes = 10
    /// How long an application runs for an answer, at least: for the first of a row it may have to be read from the disk.
    static let firstAnswer: Microseconds = 500_000
    static let leastAnswer: Microseconds = 200_000

    /// It is the first of a row.
    func isNew(_ what: String, at now: Microseconds) -> Bool { row(what, at: now) == nil }

    private func row(_ what: String, at now: Microseconds) -> Row? {
        rows.first { $0.what == what && now < $0.last.advanced(saturatingBy: Self.gap) }
    }

    mutating func add(_ what: String, resumes: Bool, at now: Microseconds) {
        var row = row(what, at: now) ?? Row(what: what, since: now, last: now)
        row.count += 1
        if resumes { row.resumed += 1 }
        row.last = now
        rows.removeAll { $0.what == what }
        rows = (rows + [row]).suffix(Self.mostRows)
        postponed = nil
    }

    /// How long the application stays suspended before it is resumed for this.
    func pause(before what: String, at now: Microseconds) -> Microseconds {
        guard let row = row(what, at: now) else { return 0 }
        return min(
            min(ran, Self.longestPause) * Microseconds(min(row.resumed, Self.mostTimes)), Self.longestPause)
    }

    /// The row no longer keeps the application running.
    func isWornOut(_ what: String, at now: Microseconds) -> Bool {
        row(what, at: now).map { now >= $0.since.advanced(saturatingBy: Self.free) } ?? false
    }

    /// In words, the last one first.
    public var descriptions: [String] {
        rows.reversed().map { row in
            guard row.count > 1 else { return row.what }
            return "\(row.what), \(row.count) times in \((row.last - row.since) / 1_000_000) s"
        }
    }
}

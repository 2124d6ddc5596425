import AppStateContract
import LifeCycle

/// The ends of applications that are not yet on the disk. A daemon that is killed before they are leaves them
/// to the next one.
struct PendingEnds {
    struct End {
        let exit: KeptApplication.Exit
        /// No other application with this id was registered.
        let isLast: Bool
    }

    /// The most ends of one user: a user who starts and ends programs faster than the disk writes must not make the
    /// daemon rewrite an ever longer file. About any further end, the next daemon knows only that it has
    /// happened.
    private static let mostPerUser = 64

    private(set) var ends: [KeptID: [End]] = [:]

    init() {}

    /// Returns false if the user has too many.
    mutating func add(_ end: End, of kept: KeptID) -> Bool {
        let count = ends.reduce(0) { $0 + ($1.key.user == kept.user ? $1.value.count : 0) }
        guard count < Self.mostPerUser else { return false }
        ends[kept, default: []].append(end)
        return true
    }

    /// They are on the disk. Returns false if there were none.
    mutating func remove(of kept: KeptID) -> Bool { ends.removeValue(forKey: kept) != nil }

    var record: Record {
        var record = Record()
        for (kept, ends) in ends {
            for end in ends { record.add("end", kept.fields + [end.isLast.digit] + end.exit.fields) }
        }
        return record
    }

    /// Leaves out what cannot be read.
    init(_ record: Record) {
        let found = record.understood("end") { fields -> (KeptID, End)? in
            guard let kept = KeptID(&fields), let isLast = fields.flag(),
                let exit = KeptApplication.Exit(&fields)
            else { return nil }
            return (kept, End(exit: exit, isLast: isLast))
        }
        for (kept, end) in found { _ = add(end, of: kept) }
    }
}

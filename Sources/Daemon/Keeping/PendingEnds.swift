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

    private(set) var ends: [KeptID: [End]] = [:]

    init() {}

    /// No more than `GetHistory` shows are left to the next daemon.
    mutating func add(_ end: End, of kept: KeptID) {
        if ends[kept]?.count == KeptApplication.mostExits { ends[kept]?.removeFirst() }
        ends[kept, default: []].append(end)
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
        for (kept, end) in found { add(end, of: kept) }
    }
}

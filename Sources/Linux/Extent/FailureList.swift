/// Summarizes the failures of operations on many processes: the first failure of each kind, and whether there
/// were others. Thousands of children may fail for the same reason.
struct FailureList {
    private var entries: [(first: KernelFailure, hasOthers: Bool, isTold: Bool)] = []
    /// The limit of kinds; one stop has fewer.
    private static let limit = 16

    /// Where there are several failures of one kind, the subject is that of the first, followed by "and others".
    var failures: [KernelFailure] { entries.map { Self.summary($0.first, $0.hasOthers) } }

    /// The failures that no earlier call has returned.
    mutating func takeUntold() -> [KernelFailure] {
        var untold: [KernelFailure] = []
        for index in entries.indices where !entries[index].isTold {
            entries[index].isTold = true
            untold.append(Self.summary(entries[index].first, entries[index].hasOthers))
        }
        return untold
    }

    mutating func add(_ failure: KernelFailure) {
        let index = entries.firstIndex {
            $0.first.operation == failure.operation && $0.first.errno == failure.errno
        }
        if let index {
            if entries[index].first != failure { entries[index].hasOthers = true }
        } else if entries.count < Self.limit {
            entries.append((failure, false, false))
        }
    }

    /// Adds the failures of another list that are not in this one yet.
    mutating func add(_ other: FailureList) {
        for entry in other.entries {
            add(entry.first)
            if entry.hasOthers, let index = entries.firstIndex(where: { $0.first == entry.first }) {
                entries[index].hasOthers = true
            }
        }
    }

    mutating func clear() { entries = [] }

    private static func summary(_ first: KernelFailure, _ hasOthers: Bool) -> KernelFailure {
        guard hasOthers else { return first }
        return KernelFailure(
            operation: first.operation, subject: first.subject + " and others", errno: first.errno)
    }
}

import AppStateContract

/// Which application is ended first when memory is short (§ 6): one pure function.
///
/// | Before anything else | Then | Then |
/// | --- | --- | --- |
/// | `held`: suspended, and only policy wants that | the user furthest above an equal share of what all applications hold | the greatest weight: bytes × time suspended |
/// | `stopped`: suspended, because another process stopped it or a client requested that | the same | the same |
/// | `background`: in the background, `automatic`, without a task, a mode or another objection; notified before | the same | bytes × time in the background |
/// | `continued`: the same, but with tasks that progress | the least progress | as for `background` |
///
/// This order applies first to applications without unsaved changes. Those with unsaved changes follow only
/// when none of the former is left.
///
/// An application is not a candidate if `reclaimable` is false, if it is launching, being ended, active or
/// inactive, or if it was spared or stuck in this event.
public enum ReclaimPolicy {
    /// How near its end an application is.
    public enum Rank: Int, Comparable, Sendable, CaseIterable {
        case held
        case stopped
        case background
        case continued

        public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    }

    /// The data about an application that the policy uses.
    struct Candidate: Equatable, Sendable {
        var number: ApplicationNumber
        var user: UInt32
        var rank: Rank
        /// Its end would lose unsaved data.
        var isUnsaved = false
        /// How long it has been suspended, or in the background.
        var age: Microseconds
        /// The memory that its end would free; 0: not known.
        var bytes: UInt64
        /// How far its tasks have come that progress, 0 to 1.
        var progress = 0.0

        /// Short times and small sizes count as a second and a mebibyte at least.
        var weight: Double { Double(max(age, 1_000_000)) * Double(max(bytes, 1 << 20)) }
    }

    /// The application to end first; nil: none.
    ///
    /// - Parameter usage: the memory of each user's applications, in bytes, regardless of their state.
    static func first(of candidates: [Candidate], usage: [UInt32: UInt64]) -> Candidate? {
        // An equal share is the same for all users, so the user furthest above it is the one who holds most.
        candidates.min { left, right in
            if left.isUnsaved != right.isUnsaved { return right.isUnsaved }
            if left.rank != right.rank { return left.rank < right.rank }
            if left.rank == .continued, left.progress != right.progress {
                return left.progress < right.progress
            }
            if left.user != right.user {
                let (mine, theirs) = (usage[left.user] ?? 0, usage[right.user] ?? 0)
                return mine == theirs ? left.user < right.user : mine > theirs
            }
            return left.weight == right.weight ? left.number < right.number : left.weight > right.weight
        }
    }
}

import AppStateContract

/// Who is ended first when memory is short (§ 6): one pure function.
///
/// | Before anything else | Then | Then |
/// | --- | --- | --- |
/// | `held`: suspended, and only policy or pressure want it so | the user furthest above an equal share of what all applications hold | the greatest weight: bytes × time suspended |
/// | `stopped`: suspended, because somebody stopped it or asked for it | the same | the same |
/// | `background`: in the background, `automatic`, without a task, a mode or another exemption; told before | the same | bytes × time in the background |
///
/// All of this once among those without unsaved changes, and only when none of them is left among those that have some.
///
/// Whoever is `reclaimable` false, launching, being ended, active, inactive, or spared or stuck in this event, is
/// no candidate.
public enum ReclaimPolicy {
    /// How near the end an application is.
    public enum Rank: Int, Comparable, Sendable, CaseIterable {
        case held
        case stopped
        case background

        public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    }

    /// What the policy knows of an application.
    public struct Candidate: Equatable, Sendable {
        public var number: ApplicationNumber
        public var user: UInt32
        public var rank: Rank
        /// Its end would lose something.
        public var isUnsaved: Bool
        /// How long it has been suspended, or in the background.
        public var age: Microseconds
        /// What its end would bring; 0: not known.
        public var bytes: UInt64

        public init(
            _ number: ApplicationNumber, user: UInt32, rank: Rank, isUnsaved: Bool = false, age: Microseconds,
            bytes: UInt64
        ) {
            self.isUnsaved = isUnsaved
            self.number = number
            self.user = user
            self.rank = rank
            self.age = age
            self.bytes = bytes
        }

        /// Neither a moment nor a page is nothing: a second and a mebibyte are the least.
        var weight: Double { Double(max(age, 1_000_000)) * Double(max(bytes, 1 << 20)) }
    }

    /// Whom to end first; nil: nobody.
    ///
    /// - Parameter usage: what the applications of each user hold, in bytes, whatever their state.
    public static func first(of candidates: [Candidate], usage: [UInt32: UInt64]) -> Candidate? {
        // An equal share is the same for all: the furthest above it is who holds most.
        candidates.min { left, right in
            if left.isUnsaved != right.isUnsaved { return right.isUnsaved }
            if left.rank != right.rank { return left.rank < right.rank }
            if left.user != right.user {
                let (mine, theirs) = (usage[left.user] ?? 0, usage[right.user] ?? 0)
                return mine == theirs ? left.user < right.user : mine > theirs
            }
            return left.weight == right.weight ? left.number < right.number : left.weight > right.weight
        }
    }
}

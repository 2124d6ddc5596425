/// Which processes the user may have acted in a moment ago.
struct Front {
    private var present: Set<Int32> = []
    /// When other processes lost the focus, as long as this counts.
    private var losses: [Int32: UInt64] = [:]

    /// The display server reports the focus on one connection and a copy on another, so either may come
    /// first; microseconds.
    private static let overlap: UInt64 = 500_000

    /// Sets the processes that have the focus now, at most one for each window system.
    mutating func note(_ processes: Set<Int32>, at now: UInt64) {
        guard processes != present else { return }
        losses = losses.filter { now < $1 + Self.overlap && !processes.contains($0) }
        for process in present.subtracting(processes) { losses[process] = now }
        present = processes
    }

    /// Those that have the focus, or lost it within the last half second.
    func processes(at now: UInt64) -> Set<Int32> {
        present.union(losses.filter { now < $1 + Self.overlap }.keys)
    }
}

import AppStateContract

/// The applications that are registered with the daemon, each by its main process, as far as the daemon has told.
struct Applications: Equatable {
    /// The application that a process is registered as.
    struct Entry: Equatable {
        let name: String
        /// The path of its object. No path is given twice.
        let path: String
    }

    /// Whether a daemon has listed all applications, and is still there. Without one, suspended applications stay
    /// suspended, and may be needed meanwhile.
    var isKnown = false
    private(set) var entries: [Int32: Entry] = [:]
    private(set) var states: [Int32: LifeCycleState] = [:]
    /// The suspended applications, no matter what has suspended them; the latest at the end.
    private(set) var suspended: [Int32] = []
    /// Those that are perhaps about to be suspended.
    private var waiting: Set<Int32> = []

    var registered: Set<Int32> { Set(entries.keys) }
    /// The applications that are suspended or about to be.
    var resting: Set<Int32> { waiting.union(suspended) }

    func process(at path: String) -> Int32? { entries.first { $0.value.path == path }?.key }

    func isWaiting(_ pid: Int32) -> Bool { waiting.contains(pid) }

    mutating func add(_ entry: Entry, _ pid: Int32) { entries[pid] = entry }

    mutating func remove(_ pid: Int32) {
        entries[pid] = nil
        states[pid] = nil
        waiting.remove(pid)
        suspended.removeAll { $0 == pid }
    }

    /// It will be suspended when its time in the background is over.
    mutating func wait(_ pid: Int32) { waiting.insert(pid) }

    /// - Parameter restsInactive: whether policy suspends it while it is visible, too.
    mutating func move(
        _ pid: Int32, from: LifeCycleState?, to: LifeCycleState?, restsInactive: Bool
    ) {
        states[pid] = to
        suspended.removeAll { $0 == pid }
        if to == .suspended { return suspended.append(pid) }
        // An application that runs again is usually needed by another process, and has yet to answer.
        if from == .suspended && to == .background || to == .inactive && restsInactive {
            waiting.insert(pid)
        } else if to != .background {
            waiting.remove(pid)
        }
    }

    /// Takes the daemon's list, which does not say which applications will be suspended.
    mutating func replace(
        _ rows: [Int32: (entry: Entry, state: LifeCycleState?)], waiting: Set<Int32>
    ) {
        isKnown = true
        entries = rows.mapValues(\.entry)
        states = rows.compactMapValues(\.state)
        let now = states.filter { $0.value == .suspended }.keys
        suspended = suspended.filter(now.contains) + now.filter { !suspended.contains($0) }.sorted()
        self.waiting = waiting
    }

    /// There is no connection to the daemon: nothing is known of what rests.
    mutating func forgetStates() {
        isKnown = false
        (suspended, waiting) = ([], [])
    }
}

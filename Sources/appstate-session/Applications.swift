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
    /// The objects of those that policy suspends while they are visible, too.
    var restingVisible: Set<String> = []

    var registered: Set<Int32> { Set(entries.keys) }
    /// The applications that are suspended, or that policy may suspend without another change of their state.
    var resting: Set<Int32> {
        let waiting = entries.filter { pid, entry in
            states[pid] == .background || states[pid] == .inactive && restingVisible.contains(entry.path)
        }
        return Set(waiting.keys).union(suspended)
    }

    mutating func add(_ entry: Entry, _ pid: Int32) { entries[pid] = entry }

    mutating func remove(_ pid: Int32) {
        entries[pid] = nil
        move(pid, to: nil)
    }

    mutating func move(_ pid: Int32, to state: LifeCycleState?) {
        states[pid] = state
        suspended.removeAll { $0 == pid }
        if state == .suspended { suspended.append(pid) }
    }

    /// Takes the daemon's list.
    mutating func replace(_ rows: [Int32: (entry: Entry, state: LifeCycleState?)]) {
        isKnown = true
        entries = rows.mapValues(\.entry)
        states = rows.compactMapValues(\.state)
        let now = states.filter { $0.value == .suspended }.keys
        suspended = suspended.filter(now.contains) + now.filter { !suspended.contains($0) }.sorted()
    }
}

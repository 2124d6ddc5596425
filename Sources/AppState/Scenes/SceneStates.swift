/// The states of an application's scenes, as a value without I/O.
///
/// A scene is as far in the foreground as its window, but never further than the application: on the way up the
/// application goes first, on the way down its scenes do.
struct SceneStates: Equatable {
    /// What the toolkit has reported about a scene's window.
    struct Window: Equatable {
        var isVisible = false
        var isActive = false
    }

    /// One edge of one scene.
    struct Edge: Equatable {
        let scene: String
        let from: SceneState
        let to: SceneState
    }

    private struct Entry: Equatable {
        let id: String
        var window = Window()
        /// When its window became active, as a number in order.
        var turn = 0
        var state = SceneState.background
    }

    /// In the order in which they were connected.
    private var entries: [Entry] = []
    /// How far the application lets its scenes go.
    private(set) var limit = ApplicationState.notRunning
    private var turns = 0

    /// A scene is connected. It is in the background until its window is reported.
    mutating func connect(_ scene: String) { entries.append(Entry(id: scene)) }

    /// Its window is gone: it leaves through the background.
    mutating func disconnect(_ scene: String) -> [Edge] {
        let edges = report(Window(), of: scene)
        entries.removeAll { $0.id == scene }
        return edges
    }

    mutating func report(_ window: Window, of scene: String) -> [Edge] {
        guard let index = entries.firstIndex(where: { $0.id == scene }) else { return [] }
        if window.isActive, !entries[index].window.isActive {
            turns += 1
            entries[index].turn = turns
        }
        entries[index].window = window
        return settle()
    }

    mutating func limit(to state: ApplicationState) -> [Edge] {
        limit = state
        return settle()
    }

    /// Moves each scene to its target. What leaves goes first.
    private mutating func settle() -> [Edge] {
        var down: [Edge] = []
        var up: [Edge] = []
        // A toolkit may report the window that gets the focus before the one that loses it.
        let focus = entries.filter { $0.window.isVisible && $0.window.isActive }.map(\.turn).max()
        for index in entries.indices {
            let target = target(of: entries[index], focus)
            while let next = entries[index].state.next(towards: target) {
                let edge = Edge(scene: entries[index].id, from: entries[index].state, to: next)
                entries[index].state = next
                if edge.from < next { up.append(edge) } else { down.append(edge) }
            }
        }
        return down + up
    }

    private func target(of entry: Entry, _ focus: Int?) -> SceneState {
        guard entry.window.isVisible, limit == .inactive || limit == .active else { return .background }
        let isActive = entry.window.isActive && entry.turn == focus && limit == .active
        return isActive ? .foregroundActive : .foregroundInactive
    }
}

extension SceneState: Comparable {
    /// From the background to the foreground.
    private static let order: [SceneState] = [
        .unattached, .background, .foregroundInactive, .foregroundActive,
    ]

    private var rank: Int { Self.order.firstIndex(of: self) ?? 0 }

    public static func < (one: SceneState, other: SceneState) -> Bool { one.rank < other.rank }

    /// The next state on the way to another one; nil: it is there.
    fileprivate func next(towards target: SceneState) -> SceneState? {
        guard self != target else { return nil }
        return Self.order[self < target ? rank + 1 : rank - 1]
    }
}

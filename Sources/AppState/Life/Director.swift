/// Runs the steps of a delegate's callbacks in order: each step ends before the next begins. While an `async`
/// callback runs, new steps wait for it.
///
/// The queue is bounded in the same way as for a suspended application: many edges are replaced by the shortest path,
/// of events of one kind only the last is kept, and of deliveries the last 64.
@MainActor
final class Director {
    /// A part of a state change.
    enum Edge {
        /// Before the change.
        case begin
        /// The change itself.
        case change(ApplicationState)
        /// After the change, with the serial to acknowledge, or 0.
        case end(UInt64)
    }

    /// What a step announces, in the detail that matters while the step waits.
    enum Kind {
        case edge(Edge)
        /// Of events with the same name, only the last is kept.
        case event(String)
        /// Something that was sent to the application.
        case delivery
        case other
    }

    private enum Step {
        case now(@MainActor () -> Void)
        case later(@MainActor () async -> Void)
    }

    private typealias Entry = (kind: Kind, step: Step)

    private static let mostDeliveries = 64
    /// If more edges than this wait, they are replaced by the shortest path.
    static let mostEdges = 12

    /// The waiting steps. Those before `head` have been taken.
    private var steps: [Entry?] = []
    private var head = 0
    private var isBusy = false

    /// The number of waiting steps.
    var count: Int { steps.count - head }
    /// Whether no step waits.
    var isIdle: Bool { count == 0 }

    /// Adds a step. It runs at once if no other step is waiting.
    func perform(_ kind: Kind = .other, _ step: @escaping @MainActor () -> Void) { add(kind, .now(step)) }

    /// Adds a step that may wait for something.
    func performLater(_ kind: Kind = .other, _ step: @escaping @MainActor () async -> Void) {
        add(kind, .later(step))
    }

    /// Inserts steps before all waiting steps. A step calls this for the steps that it consists of.
    func insert(_ body: (Director) -> Void) {
        let rest = steps[head...]
        (steps, head) = ([], 0)
        let wasBusy = isBusy
        isBusy = true
        body(self)
        steps += rest
        isBusy = wasBusy
    }

    /// If many edges are waiting, replaces them by the shortest path. Must be called between two state
    /// changes.
    ///
    /// - Parameter walk: moves the delegate to a state; it gets the state and the serial to acknowledge.
    func shortenEdges(_ walk: @escaping @MainActor (ApplicationState, UInt64) -> Void) {
        let edges = steps.indices[head...].filter { if case .edge = steps[$0]?.kind { true } else { false } }
        guard edges.count > Self.mostEdges else { return }
        var target: ApplicationState?
        var serial: UInt64 = 0
        for index in edges.dropFirst(firstChange(of: edges)) {
            guard case .edge(let edge) = steps[index]?.kind else { continue }
            steps[index] = nil
            switch edge {
            case .begin: break
            case .change(let state): target = state
            case .end(let number): serial = number
            }
        }
        removeEmpty()
        guard let target else { return }
        perform(.edge(.change(target))) { walk(target, serial) }
    }

    /// How many of the edges belong to the first change, part of which may have been announced already.
    private func firstChange(of edges: [Int]) -> Int {
        var hasChanged = false
        for (count, index) in edges.enumerated() {
            guard case .edge(let edge) = steps[index]?.kind else { continue }
            switch edge {
            case .end: if hasChanged { return count + 1 }
            case .begin, .change: if hasChanged { return count }
            }
            if case .change = edge { hasChanged = true }
        }
        return edges.count
    }

    private func removeEmpty() {
        steps = steps[head...].filter { $0 != nil }
        head = 0
    }

    private func add(_ kind: Kind, _ step: Step) {
        if !isIdle { makeRoom(for: kind) }
        steps.append((kind, step))
        advance()
    }

    private func makeRoom(for kind: Kind) {
        switch kind {
        case .event(let name):
            let same = steps.indices[head...].first {
                if case .event(name) = steps[$0]?.kind { true } else { false }
            }
            guard let same else { return }
            steps[same] = nil
            removeEmpty()
        case .delivery:
            let waiting = steps.indices[head...].filter {
                if case .delivery = steps[$0]?.kind { true } else { false }
            }
            guard waiting.count >= Self.mostDeliveries, let first = waiting.first else { return }
            steps[first] = nil
            removeEmpty()
        case .edge, .other: break
        }
    }

    /// The next step to run.
    private func next() -> Step? {
        guard head < steps.count else { return nil }
        let step = steps[head]?.step
        steps[head] = nil
        head += 1
        // Otherwise taking a step would move all waiting steps each time.
        if head == steps.count || head > 64, head * 2 > steps.count {
            steps.removeFirst(head)
            head = 0
        }
        return step
    }

    private func advance() {
        while !isBusy, let step = next() {
            isBusy = true
            switch step {
            case .now(let step):
                step()
                isBusy = false
            case .later(let step):
                Task {
                    await step()
                    self.isBusy = false
                    self.advance()
                }
            }
        }
    }
}

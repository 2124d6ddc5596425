/// Has one step end before the next begins, as the callbacks of a delegate come: what is told while an `async` callback
/// takes its time waits for it.
///
/// What waits is bounded, as it is for an application that is suspended: of many edges the shortest way is told, of
/// events of one kind the last, and of deliveries the last 64.
@MainActor
final class Director {
    /// A part of a change of the state.
    enum Edge {
        /// It is about to be.
        case begin
        /// It is.
        case change(ApplicationState)
        /// It has been. What waits for an acknowledgement of it, or 0.
        case end(UInt64)
    }

    /// What a step tells, as far as that matters to one that waits.
    enum Kind {
        case edge(Edge)
        /// Of those with the same name, the last counts.
        case event(String)
        /// What somebody has sent.
        case delivery
        case other
    }

    private enum Step {
        case now(@MainActor () -> Void)
        case later(@MainActor () async -> Void)
    }

    private typealias Entry = (kind: Kind, step: Step)

    private static let mostDeliveries = 64
    /// More edges than this that wait are told by the shortest way.
    static let mostEdges = 12

    /// What waits; those before `head` have been taken.
    private var steps: [Entry?] = []
    private var head = 0
    private var isBusy = false

    /// How many wait.
    var count: Int { steps.count - head }
    /// Nothing waits.
    var isIdle: Bool { count == 0 }

    /// Takes one step, at once where nothing is before it.
    func perform(_ kind: Kind = .other, _ step: @escaping @MainActor () -> Void) { add(kind, .now(step)) }

    /// Takes one step that may wait for something.
    func performLater(_ kind: Kind = .other, _ step: @escaping @MainActor () async -> Void) {
        add(kind, .later(step))
    }

    /// Steps that come before all that wait: called by a step, for what it consists of.
    func insert(_ body: (Director) -> Void) {
        let rest = steps[head...]
        (steps, head) = ([], 0)
        let wasBusy = isBusy
        isBusy = true
        body(self)
        steps += rest
        isBusy = wasBusy
    }

    /// Where many edges wait, has them told by the shortest way. To be called between two changes of the state.
    ///
    /// - Parameter walk: what tells them: takes the delegate to a state, with what waits for an acknowledgement.
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

    /// How many of the edges belong to the first change, which may have been told in part.
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

    /// The step whose turn it is.
    private func next() -> Step? {
        guard head < steps.count else { return nil }
        let step = steps[head]?.step
        steps[head] = nil
        head += 1
        // Else each one that is taken would move all that wait.
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

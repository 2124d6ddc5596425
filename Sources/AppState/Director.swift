/// Has one step end before the next begins, as the callbacks of a delegate come: what is told while an `async` callback
/// takes its time waits for it.
@MainActor
final class Director {
    private enum Step {
        case now(@MainActor () -> Void)
        case later(@MainActor () async -> Void)
    }

    private var steps: [Step] = []
    private var isBusy = false

    /// Takes one step, at once where nothing is before it.
    func perform(_ step: @escaping @MainActor () -> Void) { add(.now(step)) }

    /// Takes one step that may wait for something.
    func performLater(_ step: @escaping @MainActor () async -> Void) { add(.later(step)) }

    /// Steps that come before all that wait: called by a step, for what it consists of.
    func insert(_ body: (Director) -> Void) {
        let rest = steps
        steps = []
        let wasBusy = isBusy
        isBusy = true
        body(self)
        steps += rest
        isBusy = wasBusy
    }

    private func add(_ step: Step) {
        steps.append(step)
        advance()
    }

    private func advance() {
        while !isBusy, !steps.isEmpty {
            isBusy = true
            switch steps.removeFirst() {
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

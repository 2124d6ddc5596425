import AppStateContract
import LifeCycle
import Linux

/// What is known is written down before anything comes of it, and forgotten when nothing is left to be done (§ 5).
extension Daemon {
    /// Between two attempts to write down what could not be.
    private static let rewritePause: Microseconds = 10_000_000
    /// A desktop that starts reports hundreds of windows, and a record has all windows of its application in it.
    private static let longestDelay: Microseconds = 20_000

    /// Answers which stops are not to be carried out, since they could not be written down, and why.
    ///
    /// - Parameter isLazy: what nobody is told of may be written a little later.
    func writeDown(_ effects: [Effect], isLazy: Bool = false) -> [ApplicationNumber: KernelFailure] {
        var touched = core.machine.takeTouched()
        guard let state else {
            for case .removed(let number, _) in effects { noteRemoval(of: number) }
            return [:]
        }
        if isLazy, effects.isEmpty {
            if delayed.isEmpty { writeDelayedAt = Self.now + Self.longestDelay }
            delayed.formUnion(touched)
            touched = []
        }
        for case .stop(let number) in effects { stops.prepare(number) }
        state.noteLastNumber(machine.lastNumber)
        state.writeFocus(machine.rememberedFocus)
        var failures: [ApplicationNumber: KernelFailure] = [:]
        for number in touched { failures[number] = writeDown(number) }
        // After those: whoever takes another's place is known as one of the two at each moment.
        for case .removed(let number, _) in effects { noteRemoval(of: number) }
        if failures.isEmpty { return [:] }
        var refused: [ApplicationNumber: KernelFailure] = [:]
        for case .stop(let number) in effects {
            guard let failure = failures[number], let application = executor.registered[number],
                !state.hasRecorded(number, Holding(of: application))
            else { continue }
            refused[number] = failure
        }
        return refused
    }

    /// Writes down what was put off; the first few of it, where the loop goes on.
    func writeDelayed(atMost most: Int = .max) {
        for number in delayed.prefix(most) { _ = writeDown(number) }
    }

    func writeDown(_ number: ApplicationNumber) -> KernelFailure? {
        delayed.remove(number)
        guard let state, var record = machine.record(of: number),
            let application = executor.registered[number]
        else {
            unwritten.remove(number)
            return nil
        }
        record.lines += application.recorded
        let failure = state.write(number, record, Holding(of: application))
        if failure == nil {
            unwritten.remove(number)
        } else {
            unwritten.insert(number)
            rewriteAt = Self.now + Self.rewritePause
        }
        return failure
    }

    func writeDownAll() {
        for (number, application) in executor.registered {
            application.resources = []
            state?.removeResources(number)
            _ = writeDown(number)
        }
    }

    /// From now on it is no application, whatever becomes of us: whom it holds, and what is to be given back, is all that
    /// the next daemon finds of it.
    private func noteRemoval(of number: ApplicationNumber) {
        unwritten.remove(number)
        delayed.remove(number)
        guard let application = executor.registered[number] else { return }
        removed[number] = application
        state?.leave(number, Holding(of: application))
    }

    /// Forgets what an application that was removed has left, as far as that is done: all of it runs again, has its
    /// resources back. Until then, the next daemon would not know whom to continue.
    func forgetIfDone(_ number: ApplicationNumber) {
        guard executor.registered[number] == nil, number != leaving else { return }
        if !stops.isLettingGo(number) {
            removed[number] = nil
            state?.removeHolds(number)
        }
        if !resources.isGivingBack(number) { state?.removeResources(number) }
    }

    /// Whether a process has our SIGSTOP still, of an application that was removed: nobody else's.
    func isBeingLetGo(_ process: ProcessIdentity) -> Bool {
        removed.contains { stops.isLettingGo($0.key) && $0.value.suspender.holds(process) }
    }
}

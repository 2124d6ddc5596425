import LifeCycle
import Linux

/// What the next daemon must know about each application. It is written down before it has any effect, and forgotten
/// when nothing is left to be done (§ 5).
final class Records {
    private let state: RuntimeState?
    private let core: Core
    private let table: ApplicationTable
    private let now: () -> Microseconds
    /// Applications whose record could not be written, and when to try again.
    private var unwritten: Set<ApplicationNumber> = []
    private var rewriteAt: Microseconds = 0
    /// Applications whose record has changed in a way that no client was notified of, and when it is to be written.
    private var delayed: Set<ApplicationNumber> = []
    private var delayedUntil: Microseconds = 0

    /// The pause between two attempts to write down what could not be written.
    private static let rewritePause: Microseconds = 10_000_000
    private static let rewrittenAtOnce = 64
    /// A starting desktop reports hundreds of windows, and a record contains all windows of its application.
    private static let longestDelay: Microseconds = 20_000

    /// - Parameter state: nil: nothing is written down.
    init(state: RuntimeState?, core: Core, table: ApplicationTable, now: @escaping () -> Microseconds) {
        self.state = state
        self.core = core
        self.table = table
        self.now = now
    }

    // MARK: Applications

    /// Writes down what the life cycle has changed. Returns what could not be written down, and why.
    ///
    /// - Parameter isLazy: no client is notified of it, so it may be written a little later.
    func writeChanges(isLazy: Bool) -> [ApplicationNumber: KernelFailure] {
        let touched = core.machine.takeTouched()
        guard let state else { return [:] }
        if isLazy {
            if delayed.isEmpty { delayedUntil = now() + Self.longestDelay }
            delayed.formUnion(touched)
        }
        state.noteLastNumber(core.machine.lastNumber)
        state.writeFocus(core.machine.rememberedFocus)
        var failures: [ApplicationNumber: KernelFailure] = [:]
        if !isLazy { for number in touched { failures[number] = write(number) } }
        return failures
    }

    func write(_ number: ApplicationNumber) -> KernelFailure? {
        delayed.remove(number)
        guard let state, var record = core.machine.record(of: number), let application = table[number] else {
            unwritten.remove(number)
            return nil
        }
        record.lines += application.recorded
        let failure = state.write(number, record, Holding(of: application))
        if failure == nil {
            unwritten.remove(number)
        } else {
            unwritten.insert(number)
            rewriteAt = now() + Self.rewritePause
        }
        return failure
    }

    /// Whether the next daemon knows what the daemon holds, or is about to hold, of an application.
    func haveHolding(of application: Registered) -> Bool {
        state?.hasRecorded(application.number, Holding(of: application)) ?? true
    }

    /// Writes down, a little later, what the life cycle does not know.
    func rewrite(_ number: ApplicationNumber) {
        guard state != nil else { return }
        if delayed.isEmpty { delayedUntil = now() + Self.longestDelay }
        delayed.insert(number)
    }

    /// Writes down what was put off, or only the first few records if the loop goes on.
    func writeDelayed(atMost most: Int = .max) {
        for number in delayed.prefix(most) { _ = write(number) }
    }

    /// Writes down what is due by now.
    func writeDue() {
        if !unwritten.isEmpty, now() >= rewriteAt {
            for number in unwritten.prefix(Self.rewrittenAtOnce) where write(number) != nil { break }
        }
        if !delayed.isEmpty, now() >= delayedUntil { writeDelayed(atMost: 1) }
    }

    /// When `writeDue` has something to do next; nil: never.
    var nextDue: Microseconds? {
        [unwritten.isEmpty ? nil : rewriteAt, delayed.isEmpty ? nil : delayedUntil].compactMap { $0 }.min()
    }

    /// All applications but the `owed` have their resources back, and the daemon ends.
    func writeAllWithoutResources(except owed: Set<ApplicationNumber>) {
        for application in table.all {
            if !owed.contains(application.number) {
                application.resources = []
                state?.removeResources(application.number)
            }
            _ = write(application.number)
        }
    }

    // MARK: Resources

    /// Writes down what restores the resources that an application had of its own. Returns false if it could not be
    /// written.
    func writeResources(of application: Registered, _ entries: [String]) -> Bool {
        let owner = RuntimeState.Owner(main: application.process, user: application.user)
        guard state?.writeResources(application.number, owner, entries) ?? true else { return false }
        application.resources = entries
        return true
    }

    // MARK: Removed applications

    /// From now on it is no application, even if the daemon is killed. All that the next daemon finds of it is what is
    /// held, and what must be given back.
    func leave(_ number: ApplicationNumber) {
        unwritten.remove(number)
        delayed.remove(number)
        if let application = table[number] { state?.leave(number, Holding(of: application)) }
    }

    /// No process of a removed application is held or to be killed any longer.
    func haveLetGo(_ number: ApplicationNumber) { state?.removeHolds(number) }

    /// A removed application has its resources back.
    func haveGivenBack(_ number: ApplicationNumber) { state?.removeResources(number) }
}

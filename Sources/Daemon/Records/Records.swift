import LifeCycle
import Linux

/// What the next daemon is to know of each application: written down before anything comes of it, and forgotten when
/// nothing is left to be done (§ 5).
final class Records {
    private let state: RuntimeState?
    private let core: Core
    private let table: ApplicationTable
    private let now: () -> Microseconds
    /// What is known of these could not be written down; when to try again.
    private var unwritten: Set<ApplicationNumber> = []
    private var rewriteAt: Microseconds = 0
    /// What is known of these has changed in a way that nobody was told of; when it is to be written down.
    private var delayed: Set<ApplicationNumber> = []
    private var delayedUntil: Microseconds = 0

    /// Between two attempts to write down what could not be.
    private static let rewritePause: Microseconds = 10_000_000
    private static let rewrittenAtOnce = 64
    /// A desktop that starts reports hundreds of windows, and a record has all windows of its application in it.
    private static let longestDelay: Microseconds = 20_000

    /// - Parameter state: nil: nothing is written down.
    init(state: RuntimeState?, core: Core, table: ApplicationTable, now: @escaping () -> Microseconds) {
        self.state = state
        self.core = core
        self.table = table
        self.now = now
    }

    // MARK: Applications

    /// Writes down what the life cycle has changed. Answers what could not be written down, and why.
    ///
    /// - Parameter isLazy: nobody is told of it, so that it may be written a little later.
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

    /// Whether the next daemon knows whom we hold, or are about to hold, of an application.
    func haveHolding(of application: Registered) -> Bool {
        state?.hasRecorded(application.number, Holding(of: application)) ?? true
    }

    /// Writes down, a little later, what the life cycle knows nothing of.
    func rewrite(_ number: ApplicationNumber) {
        guard state != nil else { return }
        if delayed.isEmpty { delayedUntil = now() + Self.longestDelay }
        delayed.insert(number)
    }

    /// Writes down what was put off; the first few of it, where the loop goes on.
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

    /// All have their resources back, and the daemon ends.
    func writeAllWithoutResources() {
        for application in table.all {
            application.resources = []
            state?.removeResources(application.number)
            _ = write(application.number)
        }
    }

    // MARK: Resources

    /// Writes down what brings back the resources that an application had of its own. False: that could not be written.
    func writeResources(of application: Registered, _ entries: [String]) -> Bool {
        let owner = RuntimeState.Owner(main: application.process, user: application.user)
        guard state?.writeResources(application.number, owner, entries) ?? true else { return false }
        application.resources = entries
        return true
    }

    // MARK: Removed applications

    /// From now on it is no application, whatever becomes of us: whom it holds, and what is to be given back, is all that
    /// the next daemon finds of it.
    func leave(_ number: ApplicationNumber) {
        unwritten.remove(number)
        delayed.remove(number)
        if let application = table[number] { state?.leave(number, Holding(of: application)) }
    }

    /// Of an application that was removed nobody is held or to be killed any longer.
    func haveLetGo(_ number: ApplicationNumber) { state?.removeHolds(number) }

    /// An application that was removed has its resources back.
    func haveGivenBack(_ number: ApplicationNumber) { state?.removeResources(number) }
}

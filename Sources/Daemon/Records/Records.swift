import LifeCycle
import Linux

/// The data about each application that the next daemon needs. It is recorded before it has any effect, and
/// deleted when nothing is left to be done (§ 5).
final class Records {
    private let state: RuntimeState?
    private let core: Core
    private let table: ApplicationTable
    private let now: () -> Microseconds
    /// Applications whose record could not be written, and when to try again.
    private var unwritten: Set<ApplicationNumber> = []
    private var rewriteAt: Microseconds = 0
    /// Applications whose record has changed without a notification of clients, and when it will be written.
    private var delayed: Set<ApplicationNumber> = []
    private var delayedUntil: Microseconds = 0

    /// The pause between two attempts to write down what could not be written.
    private static let rewritePause: Microseconds = 10_000_000
    /// A starting desktop reports hundreds of windows, and a record contains all windows of its application.
    private static let longestDelay: Microseconds = 20_000

    /// - Parameter state: nil: nothing is recorded.
    init(state: RuntimeState?, core: Core, table: ApplicationTable, now: @escaping () -> Microseconds) {
        self.state = state
        self.core = core
        self.table = table
        self.now = now
    }

    // MARK: Applications

    /// Records the changes of the life cycle. Returns the records that could not be written, and why.
    ///
    /// - Parameter isLazy: no client is notified of the change, so it may be written a little later.
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

    /// Whether the next daemon would know which processes of an application this daemon holds or is about to
    /// hold.
    func haveHolding(of application: Registered) -> Bool {
        state?.hasRecorded(application.number, Holding(of: application)) ?? true
    }

    /// Records, a little later, data that the life cycle does not know.
    func rewrite(_ number: ApplicationNumber) {
        guard state != nil else { return }
        if delayed.isEmpty { delayedUntil = now() + Self.longestDelay }
        delayed.insert(number)
    }

    /// Writes the postponed records.
    func writeDelayed() {
        for number in delayed { _ = write(number) }
    }

    /// Writes the records that are due.
    func writeDue() {
        if !unwritten.isEmpty, now() >= rewriteAt {
            for number in unwritten where write(number) != nil { break }
        }
        if !delayed.isEmpty, now() >= delayedUntil { writeDelayed() }
    }

    /// When `writeDue` has something to do next; nil: never.
    var nextDue: Microseconds? {
        [unwritten.isEmpty ? nil : rewriteAt, delayed.isEmpty ? nil : delayedUntil].compactMap { $0 }.min()
    }

    /// The daemon ends.
    func writeAll() {
        for application in table.all { _ = write(application.number) }
    }

    // MARK: Removed applications

    /// From now on it is not an application, even if the daemon is killed. The next daemon finds only its
    /// holds.
    func leave(_ number: ApplicationNumber) {
        unwritten.remove(number)
        delayed.remove(number)
        if let application = table[number] { state?.leave(number, Holding(of: application)) }
    }

    /// No process of a removed application is held, or must be killed, any longer.
    func haveLetGo(_ number: ApplicationNumber) { state?.removeHolds(number) }
}

import LifeCycle
import Linux

/// The data about each application that the next daemon needs. It is recorded before it has any effect, and
/// deleted when nothing is left to be done (§ 5).
final class Records {
    private let state: RuntimeState?
    private let core: Core
    private let table: ApplicationTable
    private let now: () -> Microseconds
    /// When records are written that could not be written before, or whose changes can wait.
    private var due: [ApplicationNumber: Microseconds] = [:]
    /// The id of the bus: the names of connections that are recorded mean something there only.
    let bus: String

    /// The pause between two attempts to write down what could not be written.
    private static let rewritePause: Microseconds = 10_000_000
    /// A starting desktop reports hundreds of windows, and a record contains all windows of its application.
    private static let longestDelay: Microseconds = 20_000

    /// - Parameter state: nil: nothing is recorded.
    init(
        state: RuntimeState?, bus: String, core: Core, table: ApplicationTable,
        now: @escaping () -> Microseconds
    ) {
        self.state = state
        self.bus = bus
        self.core = core
        self.table = table
        self.now = now
    }

    // MARK: Applications

    /// Records the changes of the life cycle. Returns the records that could not be written, and why.
    ///
    /// - Parameter isLazy: no client is notified of the change, so it may be written a little later.
    func writeChanges(isLazy: Bool) -> [ApplicationNumber: KernelFailure] {
        let touched = core.machine.popTouched()
        let last = Record.Line("last", String(core.machine.lastNumber))
        state?.writeDaemon(Record([last]))
        var failures: [ApplicationNumber: KernelFailure] = [:]
        for number in touched {
            if isLazy { rewrite(number) } else { failures[number] = write(number) }
        }
        return failures
    }

    func write(_ number: ApplicationNumber) -> KernelFailure? {
        due[number] = nil
        guard let state, var record = core.machine.record(of: number), let application = table[number] else {
            return nil
        }
        record.add("bus", bus)
        record.lines += application.recorded
        let failure = state.write(number, record, application.hold)
        if failure != nil { due[number] = now() + Self.rewritePause }
        return failure
    }

    /// Records, a little later, what no client waits for.
    func rewrite(_ number: ApplicationNumber) {
        if state != nil { due[number] = min(due[number] ?? .max, now() + Self.longestDelay) }
    }

    /// Writes the postponed records.
    func writeDelayed() {
        for number in Array(due.keys) { _ = write(number) }
    }

    /// Writes the records that are due.
    func writeDue() {
        let now = now()
        for (number, at) in due where at <= now { _ = write(number) }
    }

    /// When `writeDue` has something to do next; nil: never.
    var nextDue: Microseconds? { due.values.min() }

    /// The daemon ends.
    func writeAll() {
        for application in table.all { _ = write(application.number) }
    }

    // MARK: Removed applications

    /// From now on it is not an application, even if the daemon is killed. The next daemon only ends its hold.
    func leave(_ number: ApplicationNumber) {
        due[number] = nil
        guard let state, let application = table[number] else { return }
        guard let hold = application.hold else { return state.remove(number) }
        var record = Record()
        record.add("process", ProcessID(application.process).fields)
        record.add("user", String(application.user))
        _ = state.write(number, record, hold)
    }

    /// No process of a removed application is held, or must be killed, any longer.
    func haveLetGo(_ number: ApplicationNumber) { state?.remove(number) }
}

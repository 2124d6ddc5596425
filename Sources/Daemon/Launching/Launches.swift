import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// The launches in progress, and the callers that wait for one.
final class Launches {
    /// One application of one user is started only once at a time.
    struct Key: Hashable {
        let user: UInt32
        let id: ApplicationID
    }

    typealias Answer = (Result<ApplicationNumber, MethodError>) -> Void

    /// With the callers that requested the same launch in the meantime.
    private var launches: [Key: [(MethodError?) -> Void]] = [:]
    /// Callers that wait until an application has launched, or has ended.
    private var launching: [(number: ApplicationNumber, again: () -> Void)] = []
    /// Callers that wait until an ending application is gone. The first has waited longest.
    private var ending: [Ending] = []
    private var timer: AppStateBus.Timer?

    private struct Ending {
        let number: ApplicationNumber
        /// When its caller no longer waits.
        let end: UInt64
        let again: (_ isGone: Bool) -> Void
    }

    /// In microseconds; a D-Bus call fails by default after 25 s (sd_bus_call(3)).
    private static let patienceWithEnd: UInt64 = 20_000_000

    init(loop: EventLoop) throws(BusFailure) {
        timer = try loop.timer { [weak self] in self?.giveUp() }
    }

    // MARK: Launches

    /// If a launch of the same application is in progress, calls `again` when it has ended, with the failure
    /// if there was one.
    ///
    /// - Returns: whether one is in progress.
    func wait(for key: Key, _ again: @escaping (MethodError?) -> Void) -> Bool {
        if launches[key] == nil { return false }
        launches[key]?.append(again)
        return true
    }

    /// Begins a launch with the call that `ask` sends.
    func begin(_ key: Key, _ ask: () throws(MethodError) -> Void) throws(MethodError) {
        launches[key] = []
        do throws(MethodError) {
            try ask()
        } catch {
            launches[key] = nil
            throw error
        }
    }

    /// Ends a launch. Waiting callers try again, unless it has failed. A launch that failed because of its
    /// caller's own arguments does not count as failed for the others.
    func end(_ key: Key, _ failure: MethodError?) {
        let waiting = launches.removeValue(forKey: key) ?? []
        let isOwn = failure?.name == ErrorName.invalidArgs.rawValue
        for again in waiting { again(isOwn ? nil : failure) }
    }

    /// Calls `again` when an application is no longer being launched.
    func wait(untilLaunched number: ApplicationNumber, _ again: @escaping () -> Void) {
        launching.append((number, again))
    }

    /// Calls `again` when an application that is ending has ended, or is not to end after all. It gets false if that
    /// takes longer than `patienceWithEnd`.
    func wait(untilGone number: ApplicationNumber, _ again: @escaping (_ isGone: Bool) -> Void) {
        let end = Clock.monotonicMicroseconds + Self.patienceWithEnd
        ending.append(Ending(number: number, end: end, again: again))
        arm()
    }

    private func giveUp() {
        let now = Clock.monotonicMicroseconds
        let late = ending.filter { $0.end <= now }
        ending.removeAll { $0.end <= now }
        arm()
        for call in late { call.again(false) }
    }

    private func arm() {
        if let first = ending.first {
            timer?.arm(at: first.end)
        } else {
            timer?.disarm()
        }
    }

    /// Must be called after each step.
    func stepHasEnded(isLaunching: (ApplicationNumber) -> Bool, isEnding: (ApplicationNumber) -> Bool) {
        if launching.isEmpty, ending.isEmpty { return }
        let ready = launching.filter { !isLaunching($0.number) }
        launching.removeAll { !isLaunching($0.number) }
        let gone = ending.filter { !isEnding($0.number) }
        ending.removeAll { !isEnding($0.number) }
        if !gone.isEmpty { arm() }
        // Whoever is told may wait again.
        for call in ready { call.again() }
        for call in gone { call.again(true) }
    }
}

import AppStateBus
import AppStateContract
import LifeCycle

/// The launches that are under way, and the calls that wait for session agents.
final class Launches {
    /// One application of one user is started once at a time.
    struct Key: Hashable {
        let user: UInt32
        let id: ApplicationID
    }

    typealias Answer = (Result<ApplicationNumber, MethodError>) -> Void

    private struct Launch {
        var slot: Slot?
        /// Who asked for the same meanwhile.
        var waiting: [(MethodError?) -> Void] = []
    }

    private var launches: [Key: Launch] = [:]
    /// How many calls of each user wait.
    private var calls: [UInt32: Int] = [:]
    /// Those that wait until an application has launched, or has ended.
    private var launching: [(number: ApplicationNumber, again: () -> Void)] = []
    /// Questions to session agents.
    private var questions: [UInt64: Slot] = [:]
    private var lastQuestion: UInt64 = 0

    /// At once, of one user: each may keep a process waiting.
    private static let mostPerUser = 16
    /// Each may keep 64 KiB.
    private static let mostCallsPerUser = 32

    // MARK: Calls

    /// One more call of a user waits, until `leave`.
    func admit(_ user: UInt32) throws(MethodError) {
        guard calls[user, default: 0] < Self.mostCallsPerUser else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostCallsPerUser) calls of user \(user) wait for session agents")
        }
        calls[user, default: 0] += 1
    }

    func leave(_ user: UInt32) {
        calls[user] = calls[user].flatMap { $0 > 1 ? $0 - 1 : nil }
    }

    /// Keeps a question to an agent until it is answered.
    ///
    /// - Parameter ask: gets what is to be called with the answer's arrival.
    func keep(_ ask: (_ answered: @escaping () -> Void) throws(MethodError) -> Slot) throws(MethodError) {
        lastQuestion += 1
        let number = lastQuestion
        questions[number] = try ask { [unowned self] in questions[number] = nil }
    }

    // MARK: Launches

    /// Has `again` called when the launch of the same application that is under way has ended, with why it has failed.
    ///
    /// - Returns: whether there is one.
    func wait(for key: Key, _ again: @escaping (MethodError?) -> Void) -> Bool {
        if launches[key] == nil { return false }
        launches[key]?.waiting.append(again)
        return true
    }

    /// Begins a launch by what `ask` has sent.
    func begin(_ key: Key, _ ask: () throws(MethodError) -> Slot) throws(MethodError) {
        guard launches.keys.count(where: { $0.user == key.user }) < Self.mostPerUser else {
            throw MethodError(
                .limitsExceeded,
                "More than \(Self.mostPerUser) applications of user \(key.user) are being launched")
        }
        launches[key] = Launch()
        do throws(MethodError) {
            launches[key]?.slot = try ask()
        } catch {
            launches[key] = nil
            throw error
        }
    }

    /// Ends it: who waited asks again, unless it has failed. What one has asked for in vain is no failure of another's.
    func end(_ key: Key, _ failure: MethodError?) {
        let waiting = launches.removeValue(forKey: key)?.waiting ?? []
        let isOwn = failure?.name == ErrorName.invalidArgs.rawValue
        for again in waiting { again(isOwn ? nil : failure) }
    }

    /// Has `again` called when an application is no longer being launched.
    func wait(untilLaunched number: ApplicationNumber, _ again: @escaping () -> Void) {
        launching.append((number, again))
    }

    /// To be called after each step.
    func stepHasEnded(isLaunching: (ApplicationNumber) -> Bool) {
        if launching.isEmpty { return }
        let ready = launching.filter { !isLaunching($0.number) }
        launching.removeAll { !isLaunching($0.number) }
        for call in ready { call.again() }
    }
}

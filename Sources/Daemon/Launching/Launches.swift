import AppStateBus
import AppStateContract
import LifeCycle

/// The launches that are under way.
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
        var waiting: [() -> Void] = []
    }

    private var launches: [Key: Launch] = [:]

    /// At once, of one user: each may keep a process waiting.
    private static let mostPerUser = 16
    /// For one launch, of those who ask for the same.
    private static let mostWaiting = 64

    /// Has `again` called when the launch of the same application that is under way has ended.
    ///
    /// - Returns: whether there is one.
    func wait(for key: Key, _ again: @escaping () -> Void) throws(MethodError) -> Bool {
        guard let launch = launches[key] else { return false }
        guard launch.waiting.count < Self.mostWaiting else {
            throw MethodError(
                .limitsExceeded, "More than \(Self.mostWaiting) calls wait for the launch of \(key.id)")
        }
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

    /// Ends it: who waited asks again.
    func end(_ key: Key) {
        let waiting = launches.removeValue(forKey: key)?.waiting ?? []
        for again in waiting { again() }
    }
}

import AppStateBus
import AppStateContract
import LifeCycle

/// The launches in progress, and the callers that requested the same one in the meantime.
final class Launches {
    /// One application of one user is started only once at a time.
    struct Key: Hashable {
        let user: UInt32
        let id: ApplicationID
    }

    typealias Answer = (Result<ApplicationNumber, MethodError>) -> Void

    private var waiting: [Key: [(MethodError?) -> Void]] = [:]

    /// If a launch of the same application is in progress, calls `again` when it has ended, with the failure
    /// if there was one.
    ///
    /// - Returns: whether one is in progress.
    func wait(for key: Key, _ again: @escaping (MethodError?) -> Void) -> Bool {
        if waiting[key] == nil { return false }
        waiting[key]?.append(again)
        return true
    }

    func begin(_ key: Key) { waiting[key] = [] }

    /// Ends a launch. Waiting callers try again, unless it has failed. A launch that failed because of its
    /// caller's own arguments does not count as failed for the others.
    func end(_ key: Key, _ failure: MethodError?) {
        let isOwn = failure?.name == ErrorName.invalidArgs.rawValue
        for again in waiting.removeValue(forKey: key) ?? [] { again(isOwn ? nil : failure) }
    }
}

public import AppStateContract

/// How an application ended. The next launch of the same id by its user receives this (lifecycle.md § 7).
public struct Ending: Equatable, Sendable {
    public let reason: ExitReason
    /// The state in which it ended.
    public let state: LifeCycleState
    /// The exit status, or the signal that ended it; nil: it is not known.
    public let status: Int32?
    /// Its saved state must not be given to the next launch.
    public let dropsSavedState: Bool
}

extension Application {
    /// - Parameter reason: the reason that the end of its process indicates. An earlier decision takes
    ///   precedence.
    func ending(_ reason: ExitReason, status: Int32?) -> Ending {
        let reason = termination?.verdict ?? reason
        // A user who force-quits it wants a fresh start. State that made it crash or hang would make it crash
        // or hang again.
        let isSpoilt = [.crashed, .unresponsive].contains(reason) && isLaunching && isRestored
        return Ending(
            reason: reason, state: state, status: status,
            dropsSavedState: reason == .forceQuit || isSpoilt)
    }
}

extension Machine {
    /// How a recorded application ended if its process is gone when it is restored; nil if the record does
    /// not say.
    public static func ending(of record: Record, _ reason: ExitReason, status: Int32?) -> Ending? {
        (try? Application(record))?.ending(reason, status: status)
    }
}

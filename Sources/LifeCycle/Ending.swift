public import AppStateContract

/// How an application ended: what its user's next launch of the same id is told (lifecycle.md § 7).
public struct Ending: Equatable, Sendable {
    public let reason: ExitReason
    /// The state that it was in.
    public let state: LifeCycleState
    /// The exit status, or the signal that ended it; nil: nobody knows.
    public let status: Int32?
    /// What it had saved is not for the next launch.
    public let dropsSavedState: Bool
}

extension Application {
    /// - Parameter reason: what its process's end says; what was decided about it before comes first.
    func ending(_ reason: ExitReason, status: Int32?) -> Ending {
        let reason = termination?.verdict ?? reason
        // A user who has it ended by force wants a fresh start. What it crashed or hung over it would crash or hang over
        // again.
        let isSpoilt = [.crashed, .unresponsive].contains(reason) && isLaunching && isRestored
        return Ending(
            reason: reason, state: state, status: status,
            dropsSavedState: reason == .forceQuit || isSpoilt)
    }
}

extension Machine {
    /// How an application ended that was written down, and whose process is gone when it is to be taken up again; nil
    /// where the record does not say.
    public static func ending(of record: Record, _ reason: ExitReason, status: Int32?) -> Ending? {
        (try? Application(record))?.ending(reason, status: status)
    }
}

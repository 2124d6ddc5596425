import AppStateBus
import AppStateContract
import LifeCycle

/// The options of `Toggle` and `ToggleFocused`, each checked.
struct ToggleOptions {
    /// Its windows are put away as well, where it is suspended.
    var minimize = false

    init(_ entries: [(key: String, value: Variant)]) throws(MethodError) {
        for (key, value) in entries {
            guard key == "minimize" else {
                throw MethodError(.invalidArgs, "Toggle has no option \"\(key.shortened)\"")
            }
            minimize = try value.bool(key)
        }
    }
}

extension Daemon {
    /// Suspends an application that runs until it gets the focus, and resumes one that is suspended, whoever has
    /// suspended it.
    ///
    /// - Parameter reply: writes the answer, given whether it is suspended now.
    func toggle(
        _ application: Application, _ options: ToggleOptions, by connection: Connection,
        _ call: PendingCall, _ reply: @escaping (borrowing Message, Bool) throws -> Void
    ) throws(MethodError) {
        let number = application.number
        try checkRoomToWait(for: number)
        if application.isStopped || !application.allHolds.isEmpty {
            try perform(.resume(number, holder: connection.holder))
            return answer(call, whenAtRest: number, wantsHold: false) { try reply($0, false) }
        }
        guard !connection.lineage.contains(application.process) else {
            throw MethodError(
                .notSuspendable, "The caller runs in application \(number): it would stop itself")
        }
        try perform(
            .suspendUntilFocused(number, holder: connection.holder, minimizing: options.minimize))
        answer(call, whenAtRest: number, wantsHold: true) { try reply($0, true) }
    }
}

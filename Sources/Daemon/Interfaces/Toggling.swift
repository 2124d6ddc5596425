import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// The options of `Toggle` and `ToggleFocused`, each checked.
struct ToggleOptions {
    /// Whether its windows are minimized as well when it is suspended.
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
    /// Suspends a running application until it gets the focus, and resumes a suspended one, whatever has suspended it.
    ///
    /// - Returns: whether it is to be suspended.
    func toggle(
        _ application: Application, _ options: ToggleOptions, by connection: Connection
    ) throws(MethodError) -> Bool {
        let number = application.number
        // An application that policy is about to suspend still runs.
        if application.isStopped || application.allHolds.contains(where: { !$0.reason.isDecision }) {
            try perform(.resume(number, holder: connection.holder))
            return false
        }
        guard !connection.lineage.contains(application.process) else {
            throw MethodError(
                .notSuspendable, "The caller runs in application \(number): it would stop itself")
        }
        // A caller within another application is in that application's terminal.
        let client =
            core.machine.owner(of: connection.lineage) == nil
            ? proc.multiplexerClient(
                within: application.process.identity, showing: connection.lineage.map(\.identity),
                isForeign: table.isForeign) : nil
        if let client {
            throw MethodError(
                .notSuspendable,
                "Application \(number) shows the caller's terminal (pid \(client)), which would stop")
        }
        try perform(.suspendUntilFocused(number, holder: connection.holder))
        if options.minimize { minimize(application) }
        return true
    }

    /// The outcome: another user's hold may keep the application suspended.
    func isSuspended(_ number: ApplicationNumber) -> Bool {
        core.machine.applications[number].map { $0.isStopped || !$0.allHolds.isEmpty } ?? false
    }
}

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
    /// Before it is suspended, it leaves the front.
    ///
    /// - Parameter reply: writes what comes before the outcome.
    func toggle(
        _ application: Application, _ options: ToggleOptions, by connection: Connection,
        _ call: borrowing Call,
        _ reply: @escaping (borrowing Message) throws -> Void = { _ in }
    ) throws(MethodError) {
        let (number, holder) = (application.number, connection.holder)
        func answer(_ call: PendingCall, wantsHold: Bool) {
            self.answer(call, whenAtRest: number, wantsHold: wantsHold) { [unowned self] in
                try reply($0)
                // Another user's hold may keep the application suspended.
                try $0.append(
                    core.machine.applications[number].map { $0.isStopped || !$0.allHolds.isEmpty } ?? false)
            }
        }
        // An application that policy is about to suspend still runs.
        if application.isStopped || application.allHolds.contains(where: { !$0.reason.isDecision }) {
            try perform(.resume(number, holder: holder))
            return answer(call.deferred(), wantsHold: false)
        }
        do throws(Refusal) {
            try core.machine.requireSuspendable(number)
        } catch {
            throw MethodError(error)
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
        let pending = call.deferred()
        leave(application, minimize: options.minimize) { [unowned self] in
            do throws(MethodError) {
                try perform(.suspendUntilFocused(number, holder: holder))
                answer(pending, wantsHold: true)
            } catch {
                pending.fail(error)
            }
        }
    }
}

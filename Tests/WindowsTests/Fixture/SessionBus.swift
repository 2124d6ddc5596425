import AppStateContract
import Glibc
import TestSupport

@testable import appstate_session

/// A session bus of its own for one test, which ends when it is released.
final class SessionBus {
    private let bus: PrivateBus
    var address: String { bus.address }
    /// A directory of its own, which is removed with it.
    var directory: String { bus.directory }

    /// - Parameter policy: further rules for this user; dbus-daemon only.
    init(_ program: BusProgram = .daemon, policy: String = "") throws {
        bus = try PrivateBus(
            program,
            policy: """
                <policy user="\(getuid())"><allow own="*"/><allow send_type="method_call"/>\(policy)</policy>
                """)
    }
}

extension Situation {
    /// These applications, and no others, are registered and suspended.
    static func suspended(_ pids: Set<Int32>) -> Situation {
        var situation = Situation()
        let rows = pids.map {
            (
                $0,
                (
                    entry: Applications.Entry(name: "org.example.\($0)", path: "/\($0)"),
                    state: LifeCycleState?.some(.suspended)
                )
            )
        }
        situation.applications.replace(Dictionary(uniqueKeysWithValues: rows))
        return situation
    }
}

import Glibc
import TestSupport

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

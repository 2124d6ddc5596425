import Foundation
import Glibc
import TestSupport

extension PrivateBus {
    /// A bus with the project's own policy, on which this user may own the daemon's name.
    static func forDaemon() throws -> PrivateBus {
        let policies = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("dbus").path
        return try PrivateBus(
            policyDirectories: [policies],
            policy: "<policy user=\"\(getuid())\"><allow own=\"org.appstate1\"/></policy>")
    }
}

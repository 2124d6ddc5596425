import Foundation
import Glibc

extension PrivateBus {
    /// A bus with the project's own policy, on which this user's daemon, or a stand-in for it, may do what the policy
    /// allows the daemon.
    ///
    /// - Parameters:
    ///   - program: the bus. Only dbus-daemon reads the other arguments.
    ///   - services: the commands of the services that the bus can start, by name.
    ///   - policy: further `<policy>` elements.
    public static func forDaemon(
        _ program: BusProgram = .daemon, services: [String: String] = [:], policy: String = ""
    ) throws -> PrivateBus {
        try PrivateBus(
            program, policyDirectories: [projectPolicies], services: services,
            policy: try rights(ofDaemonOf: getuid()) + policy)
    }

    /// What the project's policy allows root, for another user who runs the daemon; nothing for root.
    private static func rights(ofDaemonOf user: UInt32) throws -> String {
        if user == 0 { return "" }
        let file = projectPolicies + "/org.appstate1.conf"
        let text = try String(contentsOfFile: file, encoding: .utf8)
        guard let start = text.range(of: "<policy user=\"root\">"),
            let end = text.range(of: "</policy>", range: start.upperBound..<text.endIndex)
        else { throw TestFailure("\(file) allows root nothing") }
        return "<policy user=\"\(user)\">\(text[start.upperBound..<end.upperBound])"
    }

    private static let projectPolicies = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent("dbus").path
}

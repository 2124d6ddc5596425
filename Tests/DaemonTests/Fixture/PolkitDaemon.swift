import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

/// The real polkitd on the test's own bus, with the project's actions and the test's own rules. It runs in a mount
/// namespace, because its directories are compiled in.
final class PolkitDaemon {
    private static let program: String? = [
        "/usr/lib/polkit-1/polkitd", "/usr/libexec/polkitd", "/usr/libexec/polkit-1/polkitd",
        "/usr/lib/polkitd",
    ].first { access($0, X_OK) == 0 }
    private static let actions = "/usr/share/polkit-1/actions"
    private static let places = ["/etc/polkit-1/rules.d", "/usr/share/polkit-1/rules.d"]

    static let isAvailable: Bool = {
        guard App.canBeOthers, program != nil, getpwnam("polkitd") != nil,
            ([actions] + places).allSatisfy({ access($0, F_OK) == 0 }),
            let probe = try? Child("unshare", ["--mount", "--", "mount", "--bind", "/tmp", actions])
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()
    static let whatItNeeds: Comment = "needs root, mount namespaces, setpriv, and polkitd"
    /// What the bus must allow; on a real system bus, polkit's own policy does.
    static let policy =
        "<policy user=\"polkitd\"><allow own=\"\(PolkitStandIn.name)\"/></policy>"
        + "<policy context=\"default\"><allow send_destination=\"\(PolkitStandIn.name)\"/></policy>"

    private let process: Child
    private let rules: String

    /// Starts it and waits until it has its name.
    ///
    /// - Parameter rules: the text of a rules file, see polkit(8).
    init(_ daemon: TestDaemon, _ client: Client, rules text: String) throws {
        let root = daemon.bus.directory + "/polkit"
        rules = root + "/rules"
        for directory in ["rules", "actions", "none"] {
            try FileManager.default.createDirectory(
                atPath: root + "/" + directory, withIntermediateDirectories: true)
        }
        try FileManager.default.copyItem(
            atPath: Programs.root + "/dbus/org.appstate1.policy",
            toPath: root + "/actions/org.appstate1.policy")
        try text.write(toFile: rules + "/50-test.rules", atomically: true, encoding: .utf8)
        let script = """
            mount --bind "$0/actions" \(Self.actions) && mount --bind "$0/rules" \(Self.places[0]) &&
            mount --bind "$0/none" \(Self.places[1]) && exec "$@"
            """
        process = try Child(
            "unshare",
            ["--mount", "--", "sh", "-c", script, root, Self.program ?? "polkitd", "--no-debug"],
            environment: daemon.bus.environment)
        try client.wait("polkit to come") { [process] in
            if case let ending? = process.advance() {
                throw TestFailure("polkitd \(ending): \(process.errors)")
            }
            return try client.bus.hasOwner(PolkitStandIn.name)
        }
    }

    /// Replaces the rules; polkitd watches their directory.
    func replaceRules(_ text: String) throws {
        try text.write(toFile: rules + "/50-test.rules", atomically: true, encoding: .utf8)
    }

    /// Ends it, and waits until it has.
    func end() throws {
        process.kill(SIGKILL)
        try process.waitForExit()
    }
}

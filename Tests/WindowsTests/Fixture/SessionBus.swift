import Foundation
import Glibc
import TestSupport
import Testing

/// A session bus of its own for one test, which ends when it is released.
final class SessionBus {
    /// The programs that desktops use.
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case daemon = "dbus-daemon"
        case broker = "dbus-broker"

        static let present = allCases.filter(\.isPresent)

        var isPresent: Bool { program != nil && (self == .daemon || SessionBus.hasGI) }
        var testDescription: String { rawValue }

        /// scripts/setup puts dbus-broker there: its package would make it the machine's own bus.
        fileprivate var program: String? {
            let unpacked = SessionBus.root + "/.build/dbus-broker/usr/bin/dbus-broker"
            return Programs.inPath(rawValue)
                ?? (self == .broker && access(unpacked, X_OK) == 0 ? unpacked : nil)
        }
    }

    static let whatBrokerNeeds: Comment =
        "needs dbus-broker, and python3 with gi.repository.Gio to start it: scripts/setup test"

    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path
    private static let hasGI = Programs.pythonHas("gi.repository.Gio")

    let address: String
    /// A directory of its own, which is removed with it.
    let directory: String
    private let daemon: PrivateBus
    private let broker: Child?

    /// - Parameter policy: further rules for this user; dbus-daemon only.
    init(_ kind: Kind = .daemon, policy: String = "") throws {
        // dbus-broker's socket is in its directory.
        daemon = try PrivateBus(
            policy: """
                <policy user="\(getuid())"><allow own="*"/><allow send_type="method_call"/>\(policy)</policy>
                """)
        directory = daemon.directory
        guard kind == .broker, let program = kind.program else {
            (address, broker) = (daemon.address, nil)
            return
        }
        let path = directory + "/broker"
        let child = try Child(
            Programs.python, [Self.root + "/Tests/WindowsTests/Scripts/broker.py", program, path],
            leadsGroup: true)
        try child.waitForLine(containing: "listening")
        (address, broker) = ("unix:path=\(path)", child)
    }

    deinit { try? broker?.end(SIGKILL) }
}

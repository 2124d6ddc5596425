import Foundation
import Glibc
import TestSupport
import Testing

/// The real systemd-journald for one daemon, with a /run of its own in a mount namespace, and a journalctl that
/// follows its journal.
final class JournalDaemon {
    private static let program: String? = [
        "/usr/lib/systemd/systemd-journald", "/lib/systemd/systemd-journald",
    ].first { access($0, X_OK) == 0 }

    static let isAvailable =
        TestDaemon.canHaveSessions && program != nil && Programs.inPath("journalctl") != nil
        && (try? String(contentsOfFile: "/etc/machine-id", encoding: .utf8))?.isEmpty == false
    static let whatItNeeds: Comment =
        "needs root, mount namespaces, systemd-journald, journalctl, a machine id, and a directory /run/systemd"

    private let process: Child
    private let reader: Child

    /// Starts it and waits until it accepts messages.
    ///
    /// - Parameter daemon: a daemon that `hasSessions`: its /run/systemd is the journal's.
    init(of daemon: TestDaemon) throws {
        let root = daemon.bus.directory + "/journal"
        for directory in ["/systemd", "/log/journal"] {
            try FileManager.default.createDirectory(
                atPath: root + directory, withIntermediateDirectories: true)
        }
        let script = """
            mount --bind "$1" "$0/systemd" && mount --rbind "$0" /run && exec "$2"
            """
        let ready = try NotifySocket(in: root)
        process = try Child(
            "unshare",
            [
                "--mount", "--", "sh", "-c", script, root, daemon.loginDirectory,
                Self.program ?? "systemd-journald",
            ], environment: ["NOTIFY_SOCKET": ready.path])
        try ready.wait(for: "READY=1", from: process)
        reader = try Child(
            "journalctl",
            [
                "--directory", root + "/log/journal", "--follow", "--no-tail", "--output", "json",
                "SYSLOG_IDENTIFIER=appstated", "SYSLOG_IDENTIFIER=test",
            ])
    }

    /// Waits for a line with this text; returns all lines so far, in order.
    @discardableResult
    func wait(for text: String) throws -> [[String: String]] {
        try reader.waitForLine(containing: text)
        return reader.output.split(separator: "\n").compactMap { line in
            (try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])?
                .compactMapValues { $0 as? String }
        }
    }
}

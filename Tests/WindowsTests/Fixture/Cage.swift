import Foundation
import Glibc
import TestSupport
import Testing

/// cage without a screen: a compositor for a single application that reports no windows.
final class Cage {
    /// In the form of WAYLAND_DISPLAY, with its directories.
    let display: String
    private let directory: String
    private let process: Child

    static let isAvailable =
        Programs.inPath("cage") != nil && (getuid() != 0 || Programs.inPath("setpriv") != nil)
    static let whatIsMissing: Comment =
        "needs cage, a compositor that tells nobody of windows, and as root setpriv: scripts/setup test"

    init() throws {
        // It refuses to run as root.
        let uid = getuid() == 0 ? TestDesktop.nobody : nil
        directory = try TestDesktop.directory(for: uid)
        process = try Child(
            "cage", ["--", "sh", "-c", "echo STARTED $WAYLAND_DISPLAY; exec tail --pid=$PPID -f /dev/null"],
            environment: TestDesktop.headless(in: directory), uid: uid, leadsGroup: true)
        let names = try process.waitForLine(containing: "STARTED ").split(separator: " ")
        display = "\(directory)/\(names.last ?? "")"
    }

    deinit {
        try? process.end()
        try? FileManager.default.removeItem(atPath: directory)
    }
}

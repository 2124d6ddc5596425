import AppStateBus
import Foundation
import Glibc
import Linux
import TestSupport

/// A real user service manager with its own session bus and its own cgroup. Its mount namespace makes it believe that
/// the machine was booted with systemd.
final class UserManager {
    let address: String
    private let scratch: Scratch
    private let cgroup: TestCgroup
    private var daemon: Child?
    private var manager: Child?

    static let isAvailable =
        TestCgroup.isAvailable && access(program, X_OK) == 0
        && ["dbus-daemon", "unshare", "mount"].allSatisfy { Programs.inPath($0) != nil }
    static let whatIsMissing = "needs root, a writable mount of cgroup2, systemd, dbus-daemon and unshare"

    private static let program = "/usr/lib/systemd/systemd"

    init() throws {
        let scratch = try Scratch()
        self.scratch = scratch
        cgroup = try TestCgroup("user-manager")
        let path = scratch.path
        address = "unix:path=\(path)/bus"
        let environment: [String: String?] = [
            "XDG_RUNTIME_DIR": path, "HOME": path, "DBUS_SESSION_BUS_ADDRESS": address, "NOTIFY_SOCKET": nil,
        ]
        let address = address
        daemon = try Child(
            "dbus-daemon", ["--session", "--address=\(address)", "--nofork", "--nopidfile", "--nosyslog"],
            environment: environment)
        let script = """
            mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system
            echo $$ > \(cgroup.cgroup.directory)/cgroup.procs
            exec \(Self.program) --user --unit=basic.target > \(path)/log 2>&1
            """
        manager = try Child(
            "unshare", ["--mount", "--propagation", "private", "--", "sh", "-ec", script],
            environment: environment)
        let isUp = try eventually {
            guard let bus = try? Bus.open(address: address) else { return false }
            return try bus.owner(of: "org.freedesktop.systemd1") != nil
        }
        guard isUp else {
            throw TestFailure((try? String(contentsOfFile: "\(path)/log", encoding: .utf8)) ?? "no log")
        }
    }

    /// Its log, for failure messages.
    var log: String { (try? String(contentsOfFile: "\(scratch.path)/log", encoding: .utf8)) ?? "" }

    deinit {
        try? cgroup.kill()
        manager = nil
        daemon = nil
        // The lowest directories first. Killed processes leave their cgroup a moment after the kill.
        let below = FileManager.default.enumerator(atPath: cgroup.cgroup.directory)?.compactMap {
            $0 as? String
        }
        for name in (below ?? []).sorted(by: { $0.count > $1.count }) where !name.contains("cgroup.") {
            for _ in 0..<1_000 where rmdir("\(cgroup.cgroup.directory)/\(name)") != 0 && errno == EBUSY {
                sched_yield()
            }
        }
    }
}

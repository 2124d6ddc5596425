import AppStateBus
import Foundation
import Glibc
public import Linux

/// A real user service manager with its own session bus and its own cgroup. Its mount namespace makes it believe that
/// the machine was booted with systemd.
public final class UserManager {
    public let address: String
    /// The runtime directory of its user.
    public var directory: String { scratch.path }
    private let scratch: Scratch
    /// The cgroup in which all of its units are.
    public var cgroup: Cgroup { home.cgroup }
    private let home: TestCgroup
    private var daemon: Child?
    private var manager: Child?

    public static let isAvailable =
        TestCgroup.isAvailable && access(program, X_OK) == 0
        && ["dbus-daemon", "unshare", "mount", "setpriv"].allSatisfy { Programs.inPath($0) != nil }
    public static let whatIsMissing =
        "needs root, a writable mount of cgroup2, systemd, dbus-daemon and unshare"

    private static let program = "/usr/lib/systemd/systemd"

    /// - Parameter user: the user whose service manager it is, and who has a group of the same number.
    public init(of user: UInt32 = 0) throws {
        scratch = try Scratch("manager", owner: user)
        let path = scratch.path
        home = try TestCgroup("user-manager", owner: user)
        for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            chown("\(home.cgroup.directory)/\(file)", user, user)
        }
        address = "unix:path=\(path)/bus"
        let address = address
        daemon = try Child(
            "dbus-daemon", ["--session", "--address=\(address)", "--nofork", "--nopidfile", "--nosyslog"],
            environment: environment, uid: user == 0 ? nil : user)
        let script = """
            mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system
            echo $$ > \(home.cgroup.directory)/cgroup.procs
            exec setpriv --reuid=\(user) --regid=\(user) --clear-groups -- \\
                \(Self.program) --user --unit=basic.target > \(path)/log 2>&1
            """
        manager = try Child(
            "unshare", ["--mount", "--propagation", "private", "--", "sh", "-ec", script],
            environment: environment)
        let isUp = try eventually { try connect()?.owner(of: "org.freedesktop.systemd1") != nil }
        guard isUp else { throw TestFailure(log) }
    }

    private func connect() -> Bus? { try? Bus.open(address: address) }

    /// The environment of the user's programs.
    public var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "DBUS_SESSION_BUS_ADDRESS": address,
            "NOTIFY_SOCKET": nil,
        ]
    }

    /// Its log, for failure messages.
    public var log: String { (try? String(contentsOfFile: "\(directory)/log", encoding: .utf8)) ?? "no log" }

    deinit {
        try? home.kill()
        manager = nil
        daemon = nil
        // The lowest directories first. Killed processes leave their cgroup a moment after the kill.
        let below = FileManager.default.enumerator(atPath: home.cgroup.directory)?.compactMap {
            $0 as? String
        }
        for name in (below ?? []).sorted(by: { $0.count > $1.count }) where !name.contains("cgroup.") {
            for _ in 0..<1_000 where rmdir("\(home.cgroup.directory)/\(name)") != 0 && errno == EBUSY {
                sched_yield()
            }
        }
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport

/// The real daemon on a real bus of its own, with the project's bus policy. It ends when this object is released.
final class TestDaemon {
    let bus: PrivateBus
    private(set) var process: Child
    /// Where it records what must survive it.
    let runtimeDirectory: String
    /// Where it keeps what must survive a boot, if it keeps anything.
    var stateDirectory: String { bus.directory + "/state" }
    private let withoutCapabilities: [String]
    /// The directories mounted in its mount namespace, by the path at which it sees them.
    private let binds: [String: String]
    private let environment: [String: String]
    private let ready: NotifySocket

    /// What a machine must have for these tests.
    static let isAvailable = PrivateBus.isAvailable && Programs.built("appstated") != nil
    static let whatIsMissing: String = "needs dbus-daemon, and appstated built beside the tests"
    /// Whether programs can run as other users, through setpriv(1).
    static let canBeOthers = isAvailable && getuid() == 0 && Programs.inPath("setpriv") != nil

    /// Starts a daemon and waits until it says READY=1.
    ///
    /// - Parameters:
    ///   - program: the bus. dbus-broker has neither a policy nor services here.
    ///   - configuration: the text of its configuration file.
    ///   - policy: further elements of the bus's policy.
    ///   - services: the commands of the services that the bus can start, by name.
    ///   - withoutCapabilities: capabilities to remove through setpriv(1); without `perfmon`, it cannot trace.
    ///   - environment: further variables.
    ///   - keeps: it has a `stateDirectory`.
    ///   - hasSessions: its /run/systemd is `loginDirectory`, in a mount namespace of its own.
    ///   - etc: the same for its /etc.
    init(
        on program: BusProgram = .daemon, configuration: String = "", withoutCapabilities: [String] = [],
        policy: String = "", services: [String: String] = [:], environment: [String: String] = [:],
        keeps: Bool = false, hasSessions: Bool = false, etc: String? = nil
    ) throws {
        bus = try PrivateBus.forDaemon(program, services: services, policy: policy)
        try Self.write(configuration, on: bus)
        ready = try NotifySocket(in: bus.directory)
        self.withoutCapabilities = withoutCapabilities
        let login = bus.directory + "/login"
        binds = (hasSessions ? ["/run/systemd": login] : [:]).merging(etc.map { ["/etc": $0] } ?? [:]) { $1 }
        mkdir(login, 0o755)
        runtimeDirectory = bus.directory + "/run"
        mkdir(runtimeDirectory, 0o700)
        let kept = keeps ? ["STATE_DIRECTORY": bus.directory + "/state"] : [:]
        if keeps { mkdir(bus.directory + "/state", 0o700) }
        self.environment = environment.merging(kept) { $1 }
        process = try Self.launch(
            bus, ready, runtimeDirectory, self.environment, withoutCapabilities, binds)
        try waitForStart()
    }

    /// The directory that the daemon's sd-login(3) sees as /run/systemd, if it `hasSessions`.
    var loginDirectory: String { bus.directory + "/login" }

    /// Whether a test can give a daemon sessions of its own.
    static let canHaveSessions: Bool = {
        guard canBeOthers, access("/run/systemd", X_OK) == 0,
            let probe = try? Child("unshare", ["--mount", "--", "mount", "--bind", "/tmp", "/run/systemd"])
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()
    static let whatSessionsNeed: String = "needs root, mount namespaces, and a directory /run/systemd"

    private static func launch(
        _ bus: PrivateBus, _ ready: NotifySocket, _ runtimeDirectory: String, _ environment: [String: String],
        _ withoutCapabilities: [String], _ binds: [String: String], descriptors: Int? = nil
    ) throws -> Child {
        var command = [
            Programs.built("appstated") ?? "appstated", "--config", bus.directory + "/appstated.conf",
        ]
        if !withoutCapabilities.isEmpty {
            let list = withoutCapabilities.map { "-" + $0 }.joined(separator: ",")
            command = ["setpriv", "--bounding-set=\(list)", "--inh-caps=\(list)", "--"] + command
        }
        if let descriptors { command = ["prlimit", "--nofile=\(descriptors)", "--"] + command }
        if !binds.isEmpty {
            let mounts = binds.map { "mount --bind '\($0.value)' '\($0.key)' && " }.joined()
            command = ["unshare", "--mount", "--", "sh", "-c", mounts + "exec \"$@\"", "sh"] + command
        }
        let own = ["NOTIFY_SOCKET": ready.path, "RUNTIME_DIRECTORY": runtimeDirectory]
        return try Child(
            command[0], Array(command.dropFirst()),
            environment: bus.environment.merging(environment.merging(own) { $1 }) { $1 })
    }

    /// Ends it with this signal, unless it has ended; does not start it again.
    func end(_ signal: Int32) throws {
        process.kill(signal)
        _ = try process.waitForExit()
    }

    /// Starts `appstated --release` with its files.
    ///
    /// - Parameter descriptors: the most descriptors that it may have (prlimit(1)).
    func release(descriptors: Int? = nil) throws -> Child {
        var command = [Programs.built("appstated") ?? "appstated", "--release"]
        if let descriptors { command = ["prlimit", "--nofile=\(descriptors)", "--"] + command }
        return try Child(
            command[0], Array(command.dropFirst()), environment: ["RUNTIME_DIRECTORY": runtimeDirectory])
    }

    /// Starts another daemon in its place, on the same bus, with the same files.
    ///
    /// - Parameter descriptors: the most descriptors that it may have (prlimit(1)).
    func start(descriptors: Int? = nil) throws {
        try begin(descriptors: descriptors)
        try waitForStart()
    }

    /// The same, without waiting until it says READY=1.
    func begin(descriptors: Int? = nil) throws {
        process = try Self.launch(
            bus, ready, runtimeDirectory, environment, withoutCapabilities, binds,
            descriptors: descriptors)
    }

    func waitForStart() throws { try ready.wait(for: "READY=1", from: process) }

    /// The configuration file that `SIGHUP` and `ReloadConfig` read again.
    var configurationFile: String { Self.configurationFile(on: bus) }

    private static func configurationFile(on bus: PrivateBus) -> String { bus.directory + "/appstated.conf" }

    /// Pressure of the machine that runs the tests is switched off unless a test configures it: what runs beside the
    /// tests must not cause warnings or ends of applications. Likewise a launch may take an hour: a busy
    /// machine may stall for longer than the default.
    private static func write(_ configuration: String, on bus: PrivateBus) throws {
        let quiet = configuration.contains("[Pressure]") ? "" : "\n[Pressure]\nSource=/nonexistent\n"
        let isTimed = configuration.contains("LaunchTimeoutSec")
        let patient = isTimed ? "" : "\n[LifeCycle]\nLaunchTimeoutSec=1h\n"
        try (configuration + quiet + patient).write(
            toFile: configurationFile(on: bus), atomically: true, encoding: .utf8)
    }

    /// Replaces its configuration file, which it does not read before a reload.
    func configure(_ configuration: String) throws { try Self.write(configuration, on: bus) }

    /// Replaces its configuration file, and waits until that is in force.
    func reconfigure(_ configuration: String) throws {
        try configure(configuration)
        try reload()
    }

    /// Makes it reload its configuration, and waits until it has.
    func reload() throws {
        process.kill(SIGHUP)
        try ready.wait(for: "READY=1", from: process)
    }

    /// A client that has called `Subscribe` and keeps every signal it is sent.
    func subscriber() throws -> Client {
        let client = try Client(bus)
        try client.call(BusNames.root, BusNames.manager, "Subscribe")
        return client
    }

    func client() throws -> Client { try Client(bus) }

    /// Runs busctl as some user on this bus; returns its output, standard error included, and its exit status.
    func busctl(_ arguments: [String], uid: UInt32? = nil) throws -> (output: String, status: Child.Ending) {
        let child = try Child(
            "busctl", ["--address=\(bus.address)", "--no-pager"] + arguments, environment: bus.environment,
            uid: uid)
        let status = try child.waitForExit()
        return (child.output + child.errors, status)
    }
}

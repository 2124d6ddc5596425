import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// appstated, started by hand.
@Suite(
    "The daemon's command line",
    .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct CommandLineTests {
    private func run(
        _ arguments: [String],
        environment: [String: String?] = ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent"],
        uid: UInt32? = nil
    ) throws -> (ending: Child.Ending, output: String, errors: String) {
        let child = try Child(
            Programs.built("appstated") ?? "appstated", arguments, environment: environment, uid: uid)
        let ending = try child.waitForExit()
        return (ending, child.output, child.errors)
    }

    @Test(
        "--help prints the usage and does nothing else",
        arguments: [["--help"], ["-h"], ["--release", "--help"]])
    func help(_ options: [String]) throws {
        let (ending, output, errors) = try run(options)
        #expect(ending == .exited(0))
        for word in ["--config FILE", "--version", "--help", "DBUS_SYSTEM_BUS_ADDRESS", "NOTIFY_SOCKET"] {
            #expect(output.contains(word), "\(word)")
        }
        #expect(output.split(separator: "\n").allSatisfy { $0.count <= 80 })
        #expect(errors == "")
    }

    @Test("--version prints the name and the version")
    func version() throws {
        let (ending, output, errors) = try run(["--version"])
        #expect(ending == .exited(0))
        #expect(output == "appstated \(Product.version)\n")
        #expect(errors == "")
    }

    @Test(
        "an invalid argument is refused with one line on standard error and status 2",
        arguments: [
            ["--colour"], ["start"], ["--config"], ["-x"], ["--config", "/dev/null", "more"], [""],
            ["--release", "more"], ["--config", "/dev/null", "--release"], ["--hand-over", "--version"],
        ])
    func wrong(_ arguments: [String]) throws {
        let (ending, output, errors) = try run(arguments)
        #expect(ending == .exited(2))
        #expect(output == "")
        #expect(errors.hasPrefix("appstated: "))
        #expect(errors.contains("appstated --help"))
        #expect(errors.filter { $0 == "\n" }.count == 1)
    }

    @Test("without a system bus, the daemon says so in one line and exits with status 1")
    func noBus() throws {
        let (ending, _, errors) = try run([])
        #expect(ending == .exited(1))
        #expect(errors.hasPrefix("appstated: there is no system bus to serve: "))
        #expect(errors.contains("unix:path=/nonexistent"))
        #expect(errors.filter { $0 == "\n" }.count == 1)
    }

    @Test(
        "a second daemon says that it cannot serve, exits with status 1 and does not disturb the first")
    func nameTaken() throws {
        let daemon = try TestDaemon()
        let (ending, _, errors) = try run(["--config", "/dev/null"], environment: daemon.bus.environment)
        #expect(ending == .exited(1))
        let last = errors.split(separator: "\n").last ?? ""
        #expect(last.hasPrefix("appstated: cannot serve \(BusNames.service): "))
        #expect(try daemon.client().list() == [])
    }

    @Test(
        "a daemon that may not own the bus name says so and exits with status 1",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func notAllowed() throws {
        let bus = try PrivateBus(policyDirectories: [Programs.root + "/dbus"])
        let (ending, _, errors) = try run(
            ["--config", "/dev/null"], environment: bus.environment, uid: App.nobody)
        #expect(ending == .exited(1))
        let last = errors.split(separator: "\n").last ?? ""
        #expect(last.hasPrefix("appstated: cannot serve \(BusNames.service): "))
    }

    @Test("--hand-over passes what it could open to the service manager, and exits")
    func handOver() throws {
        let bus = try PrivateBus(policyDirectories: [Programs.root + "/dbus"])
        let manager = try NotifySocket(in: bus.directory)
        let child = try Child(
            Programs.built("appstated") ?? "appstated", ["--hand-over"],
            environment: ["NOTIFY_SOCKET": manager.path])
        #expect(try child.waitForExit() == .exited(0))
    }

    @Test("the daemon notifies the service manager's watchdog again and again")
    func watchdog() throws {
        let bus = try PrivateBus.forDaemon()
        let manager = try NotifySocket(in: bus.directory)
        let child = try Child(
            Programs.built("appstated") ?? "appstated",
            environment: bus.environment.merging([
                "NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "100000",
            ]) { $1 })
        try manager.wait(for: "READY=1", from: child)
        for _ in 0..<3 { try manager.wait(for: "WATCHDOG=1", from: child) }
    }

    @Test("when the bus goes away, the daemon says so, continues what it stopped and exits with status 1")
    func busLost() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let sleeper = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", sleeper.pid)
        try client.application(path, "Suspend")
        #expect(try isStopped(sleeper.pid))
        daemon.bus.stop()
        #expect(try daemon.process.waitForExit() == .exited(1))
        #expect(daemon.process.errors.contains("the bus has gone away"))
        #expect(try !isStopped(sleeper.pid))
    }
}

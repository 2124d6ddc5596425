import Foundation
import Glibc

/// A real bus for one test, on a socket in a directory of its own. dbus-daemon has the stock default-deny policy of the
/// system bus; dbus-broker allows everything. When this object is released, the bus ends and the directory is removed.
/// The machine's own bus is never touched.
public final class PrivateBus {
    /// Where it listens: `unix:path=…`.
    public let address: String
    /// A directory of its own, readable by all, removed at the end. The socket is in it.
    public var directory: String { scratch.path }
    private let scratch: Scratch
    private let program: BusProgram
    private var process: Child?

    /// Whether dbus-daemon is installed.
    public static let isAvailable: Bool = Programs.inPath("dbus-daemon") != nil

    /// Starts the bus and waits until it listens.
    ///
    /// - Parameters:
    ///   - program: the bus. Only dbus-daemon reads the other arguments.
    ///   - policyDirectories: directories with `*.conf`, as in system.d.
    ///   - serviceDirectories: directories with `*.service`, as in system-services. The bus runs Exec= itself, as
    ///     its own user.
    ///   - services: the commands of further services that the bus can start, by name.
    ///   - policy: further `<policy>` elements.
    public init(
        _ program: BusProgram = .daemon, policyDirectories: [String] = [], serviceDirectories: [String] = [],
        services: [String: String] = [:], policy: String = ""
    ) throws {
        self.program = program
        scratch = try Scratch("bus")
        let directory = scratch.path
        // Other users must reach the socket.
        chmod(directory, 0o755)
        let own = try Self.write(services, in: directory)
        let configuration = Self.configuration(
            directory: directory, policyDirectories: policyDirectories,
            serviceDirectories: serviceDirectories + own, policy: policy)
        let (process, address) =
            switch program {
            case .daemon: try Self.startDaemon(in: directory, configuration)
            case .broker: try Self.startBroker(in: directory)
            }
        self.process = process
        self.address = address
    }

    /// Writes activation files; the bus reads them again when it starts one.
    ///
    /// - Returns: their directory, if there are any.
    private static func write(_ services: [String: String], in directory: String) throws -> [String] {
        if services.isEmpty { return [] }
        let place = "\(directory)/services"
        mkdir(place, 0o755)
        for (name, command) in services {
            try "[D-BUS Service]\nName=\(name)\nExec=\(command)\n"
                .write(toFile: "\(place)/\(name).service", atomically: true, encoding: .utf8)
        }
        return [place]
    }

    private static func startDaemon(
        in directory: String, _ configuration: String
    ) throws -> (process: Child, address: String) {
        let file = "\(directory)/bus.conf"
        try configuration.write(toFile: file, atomically: false, encoding: .utf8)
        // A pipe that is not read would fill up and block the bus.
        let errors = "\(directory)/bus.log"
        let log = open(errors, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
        guard log >= 0 else {
            throw Child.Failure(description: "cannot open \(errors): \(String(cString: strerror(errno)))")
        }
        defer { close(log) }
        let pipe = try PipeEnds()
        let daemon = try Child(
            "dbus-daemon",
            ["--config-file=\(file)", "--nofork", "--nopidfile", "--nosyslog", "--print-address=3"],
            environment: environmentOfBus, descriptors: [2: log, 3: pipe.write])
        close(pipe.takeWrite())
        return (daemon, try line(from: pipe.read, of: daemon, errors))
    }

    private static func startBroker(in directory: String) throws -> (process: Child, address: String) {
        let path = socket(in: directory)
        let broker = try Child(
            Programs.python, [BusProgram.starterOfBroker, BusProgram.broker.path ?? "dbus-broker", path],
            environment: environmentOfBus, leadsGroup: true)
        try broker.waitForLine(containing: "listening")
        // Other users must be able to connect.
        chmod(path, 0o666)
        return (broker, "unix:path=\(path)")
    }

    private static let environmentOfBus: [String: String?] = [
        "DBUS_SYSTEM_BUS_ADDRESS": nil, "DBUS_SESSION_BUS_ADDRESS": nil, "NOTIFY_SOCKET": nil,
    ]

    private static func socket(in directory: String) -> String { "\(directory)/system_bus_socket" }

    deinit {
        stop()
    }

    /// Ends the bus and all its connections.
    public func stop() {
        // The program that starts dbus-broker ends first, and dbus-broker because of that.
        if program == .broker { try? process?.end(SIGKILL) }
        process = nil
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// The environment variables that make this bus a program's system bus, and keep midnight away from it: a daemon
    /// announces midnight, and no test that compares signals expects that.
    public var environment: [String: String?] {
        ["DBUS_SYSTEM_BUS_ADDRESS": address, "TZ": Self.zoneAtNoon]
    }

    /// A time zone in which these tests began at noon (tzset(3): hours to add to the local time to get UTC).
    private static let zoneAtNoon: String = {
        let hour = Int(Date.now.timeIntervalSince1970) / 3_600 % 24
        return "NOON\(hour - 12)"
    }()

    /// Reads the address that dbus-daemon prints once it listens. Throws if dbus-daemon ends, because it cannot listen.
    private static func line(from descriptor: Int32, of daemon: Child, _ errors: String) throws -> String {
        var line: [UInt8] = []
        while true {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&ready, 1, 300_000) == 1 else {
                throw Child.Failure(description: "dbus-daemon prints no address")
            }
            var byte: UInt8 = 0
            guard read(descriptor, &byte, 1) == 1 else {
                try daemon.waitForExit()
                let errors = try? String(contentsOfFile: errors, encoding: .utf8)
                throw Child.Failure(description: "dbus-daemon ended: \(errors ?? "")")
            }
            if byte == UInt8(ascii: "\n") {
                return String(decoding: line, as: UTF8.self)
            }
            line.append(byte)
        }
    }

    /// The stock system.conf without its user, pid file and activation helper.
    private static func configuration(
        directory: String, policyDirectories: [String], serviceDirectories: [String], policy: String
    ) -> String {
        """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
          "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
          <type>system</type>
          <listen>unix:path=\(socket(in: directory))</listen>
          <auth>EXTERNAL</auth>
          \(serviceDirectories.map { "<servicedir>\($0)</servicedir>" }.joined())
          <policy context="default">
            <allow user="*"/>
            <deny own="*"/>
            <deny send_type="method_call"/>
            <allow send_type="signal"/>
            <allow send_requested_reply="true" send_type="method_return"/>
            <allow send_requested_reply="true" send_type="error"/>
            <allow receive_type="method_call"/>
            <allow receive_type="method_return"/>
            <allow receive_type="error"/>
            <allow receive_type="signal"/>
            <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
            <allow send_destination="org.freedesktop.DBus"
                   send_interface="org.freedesktop.DBus.Introspectable"/>
            <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Properties"/>
            <deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"
                  send_member="UpdateActivationEnvironment"/>
            <deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Debug.Stats"/>
            <deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.systemd1.Activator"/>
          </policy>
          <policy user="root">
            <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Monitoring"/>
            <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Debug.Stats"/>
          </policy>
          \(policyDirectories.map { "<includedir>\($0)</includedir>" }.joined())
          \(policy)
        </busconfig>
        """
    }
}

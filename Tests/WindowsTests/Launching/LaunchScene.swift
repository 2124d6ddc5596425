import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The real agent on a system bus where a stand-in owns the daemon's name, with a session bus and desktop entries of
/// its own. All of it ends when it is released.
final class LaunchScene {
    let system: PrivateBus
    let session: PrivateBus
    let loop: EventLoop
    private(set) var agent: Child?
    private var daemon: Bus?
    private var slots: [Slot] = []
    /// The connection that has registered itself, and its session.
    private(set) var registration: (connection: String, session: String)?
    private let environment: [String: String?]
    private var ready: NotifySocket?

    /// Whether programs can use GLib's application class.
    static let hasGLib: Bool = {
        guard let probe = try? Child("/usr/bin/python3", ["-c", "from gi.repository import Gio"]) else {
            return false
        }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    /// A start, as the agent reports it to the daemon.
    struct Started {
        let number: UInt64
        let process: PidDescriptor
        let isHeld: Bool
        let unit: String
    }

    /// Starts the agent and waits until it has registered itself.
    ///
    /// - Parameter display: the environment of an observable display.
    init(on display: [String: String?], arguments: [String] = []) throws {
        // The project's policy lets nobody ask the agent what it exports.
        system = try PrivateBus.forDaemon(
            policy: """
                <policy context="default">
                <allow send_interface="org.freedesktop.DBus.Introspectable"/>
                </policy>
                """)
        let services = system.directory + "/services"
        mkdir(services, 0o755)
        session = try PrivateBus(
            serviceDirectories: [services],
            policy: """
                <policy context="default"><allow own="*"/><allow send_type="method_call"/></policy>
                """)
        for name in ["data", "data/applications", "agent", "home"] {
            mkdir("\(system.directory)/\(name)", 0o755)
        }
        loop = try EventLoop()
        environment = display.merging(system.environment) { $1 }.merging([
            "DBUS_SESSION_BUS_ADDRESS": session.address, "XDG_DATA_HOME": system.directory + "/data",
            "XDG_DATA_DIRS": "/nonexistent", "XDG_CONFIG_HOME": system.directory + "/config",
            "HOME": system.directory + "/home", "TERMINAL": "xterm",
        ]) { $1 }
        try startDaemon()
        try startAgent(arguments)
    }

    // MARK: Both ends

    /// The stand-in takes the daemon's name.
    func startDaemon() throws {
        let bus = try Bus.open(address: system.address)
        slots.append(
            try bus.add(
                Interface(
                    BusNames.manager,
                    methods: [
                        Method(ManagerMethod.registerLauncher.rawValue, in: [("session", "s")]) {
                            [unowned self] call in
                            registration = (call.sender, try call.read { try $0.readString() })
                            try call.reply()
                        },
                        Method(ManagerMethod.registerPresenter.rawValue, in: [("session", "s")]) { call in
                            try call.reply()
                        },
                    ]), at: BusNames.root))
        try bus.attach(to: loop)
        try bus.requestName(BusNames.service)
        daemon = bus
    }

    /// The stand-in leaves the bus.
    func endDaemon() {
        daemon?.close()
        (daemon, slots, registration) = (nil, [], nil)
    }

    func startAgent(_ arguments: [String] = []) throws {
        unlink(system.directory + "/agent/notify")
        let ready = try NotifySocket(in: system.directory + "/agent")
        self.ready = ready
        let agent = try Child(
            Programs.built("appstate-session") ?? "appstate-session", arguments,
            environment: environment.merging(["NOTIFY_SOCKET": ready.path]) { $1 })
        self.agent = agent
        try ready.wait(for: "READY=1", from: agent)
        try waitForRegistration()
    }

    func waitForRegistration() throws {
        try wait("the agent's registration") { self.registration != nil }
    }

    func wait(_ what: String, until done: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while try !done() {
            guard ContinuousClock.now < deadline else {
                _ = agent?.advance()
                throw TestFailure("\(what) did not happen\n\(agent?.errors ?? "")")
            }
            try loop.runOnce(timeout: 20_000)
        }
    }

    // MARK: Entries

    var data: String { system.directory + "/data" }

    /// Writes a desktop entry.
    func entry(_ id: String, _ lines: String...) throws {
        let text = (["[Desktop Entry]", "Type=Application", "Name=\(id)"] + lines).joined(separator: "\n")
        try (text + "\n").write(
            toFile: "\(data)/applications/\(id).desktop", atomically: true, encoding: .utf8)
    }

    /// A program that records its pid, arguments and environment, and ends with a status.
    ///
    /// - Returns: its path, and the path of the record.
    func program(_ name: String, status: Int = 0, then: String = "") throws -> (path: String, record: String)
    {
        let (path, record) = ("\(system.directory)/\(name)", "\(system.directory)/\(name).record")
        try write(
            program: path,
            """
            #!/bin/sh
            {
                echo "$$"
                echo "cwd $(pwd)"
                echo "token $XDG_ACTIVATION_TOKEN"
                echo "startup $DESKTOP_STARTUP_ID"
                for word; do echo "[$word]"; done
            } > '\(record).new'
            mv '\(record).new' '\(record)'
            \(then)
            exit \(status)

            """)
        return (path, record)
    }

    func write(program path: String, _ text: String) throws {
        // Not by this process, as with `Programs.copy`.
        let command = "printf '%s' \"$1\" >\"$0\" && chmod 755 \"$0\""
        let child = try Child("sh", ["-c", command, path, text])
        guard try child.waitForExit() == .exited(0) else { throw TestFailure(child.errors) }
    }

    /// Makes a program the session bus's service for a name.
    func service(_ name: String, _ program: String) throws {
        let starter = "/usr/bin/env DBUS_SESSION_BUS_ADDRESS=\(session.address)"
        try "[D-BUS Service]\nName=\(name)\nExec=\(starter) \(program)\n".write(
            toFile: "\(system.directory)/services/\(name).service", atomically: true, encoding: .utf8)
        let bus = try Bus.open(address: session.address)
        _ = try bus.call(try bus.newDriverCall("ReloadConfig"))
    }

    /// What a program has recorded; waits until it has.
    func record(_ path: String) throws -> [String] {
        var text: String?
        try wait(path) {
            text = try? String(contentsOfFile: path, encoding: .utf8)
            // The file may exist before it is complete.
            return text?.hasSuffix("\n") == true
        }
        return (text ?? "").split(separator: "\n").map(String.init)
    }

    // MARK: Calls

    /// Calls the agent as the daemon does and waits for the reply.
    func call<Name: MethodName>(
        _ method: Name, _ body: (borrowing Message) throws -> Void
    ) throws -> Message {
        guard let daemon, let registration else { throw TestFailure("the daemon or the agent is missing") }
        return try Self.call(daemon, registration.connection, method, body)
    }

    static func call<Name: MethodName>(
        _ bus: Bus, _ agent: String, _ method: Name, _ body: (borrowing Message) throws -> Void
    ) throws -> Message {
        let message = try bus.newCall(
            destination: agent, path: BusNames.agentPath, interface: Name.interface, member: method.rawValue)
        try body(message)
        return try bus.call(message, timeout: 300_000_000)
    }

    /// What the agent exports, as XML.
    func introspection() throws -> String {
        guard let daemon, let registration else { throw TestFailure("the daemon or the agent is missing") }
        let message = try daemon.newCall(
            destination: registration.connection, path: BusNames.agentPath,
            interface: "org.freedesktop.DBus.Introspectable", member: "Introspect")
        return try daemon.call(message, timeout: 300_000_000).readString()
    }

    func start(_ id: String, _ options: [(String, Variant)] = []) throws -> Started {
        let reply = try call(LauncherMethod.start) { message in
            try message.append(id)
            try message.appendDictionary(options)
        }
        return Started(
            number: try reply.readUInt64(), process: PidDescriptor(try reply.readDescriptor()),
            isHeld: try reply.readBool(), unit: try reply.readString())
    }

    func proceed(_ launch: Started) throws {
        _ = try call(LauncherMethod.proceed) { try $0.append(launch.number) }
    }

    func cancel(_ launch: Started) throws {
        _ = try call(LauncherMethod.cancel) { try $0.append(launch.number) }
    }

    func present(_ id: String, _ pid: Int32) throws -> Bool {
        try call(PresenterMethod.present) { message in
            try message.append(id)
            try message.append(UInt32(pid))
            try message.appendDictionary([])
        }.readBool()
    }

    func open(_ id: String, _ pid: Int32, _ options: [(String, Variant)] = []) throws {
        _ = try call(LauncherMethod.open) { message in
            try message.append(id)
            try message.append(UInt32(pid))
            try message.appendDictionary(options)
        }
    }

    func exit(of launch: Started) throws -> String {
        let reply = try call(LauncherMethod.getExit) { try $0.append(launch.number) }
        return "\(try reply.readString()) \(try reply.readInt32())"
    }

    /// The name and the text of the error with which a start is refused.
    func refusal(_ id: String, _ options: [(String, Variant)] = []) throws -> (name: String, text: String) {
        do {
            _ = try start(id, options)
        } catch let failure as BusFailure {
            return (failure.name ?? "", failure.message ?? "")
        }
        throw TestFailure("\(id) was started")
    }
}

/// A pidfd that a test received.
final class PidDescriptor {
    let number: Int32

    init(_ number: Int32) { self.number = number }

    deinit { close(number) }

    /// The pid from its fdinfo; -1 once the process has ended.
    var pid: Int32 {
        let text = try? String(contentsOfFile: "/proc/self/fdinfo/\(number)", encoding: .utf8)
        let line = text?.split(separator: "\n").first { $0.hasPrefix("Pid:") }
        return line?.split(separator: "\t").last.flatMap { Int32($0) } ?? -1
    }

    /// Signals it, or does nothing once it has ended.
    ///
    /// - Parameter wholeGroup: signals the process group that it leads.
    func kill(_ signal: Int32, wholeGroup: Bool = false) {
        let pid = pid
        if pid > 1 { _ = Glibc.kill(wholeGroup ? -pid : pid, signal) }
    }

    var hasEnded: Bool {
        var look = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        return poll(&look, 1, 0) == 1
    }

    func waitForEnd() throws {
        var look = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        guard poll(&look, 1, 300_000) == 1 else { throw TestFailure("process \(pid) did not end") }
    }
}

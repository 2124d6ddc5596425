import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The real daemon on a private bus, and a client that calls it. All of them end with this object.
final class Theatre {
    let bus: PrivateBus
    private(set) var daemon: Child
    private let ready: NotifySocket
    private let connection: Bus

    static let isAvailable =
        PrivateBus.isAvailable && Programs.built("appstated") != nil && Programs.built("LibraryActor") != nil
    static let whatIsMissing: Comment = "needs dbus-daemon, and appstated built beside the tests"

    /// - Parameters:
    ///   - grace: BackgroundGraceSec. An hour: what is suspended before has acknowledged.
    ///   - configuration: more of the daemon's.
    ///   - pressure: its section [Pressure]. Without one, the daemon does not watch the memory of this machine.
    init(
        grace: String = "3600", configuration: String = "", pressure: String = "Source=/nonexistent"
    ) throws {
        bus = try PrivateBus.forDaemon()
        for name in ["run", "state", "agent"] { mkdir("\(bus.directory)/\(name)", 0o700) }
        let text = """
            [LifeCycle]
            BackgroundGraceSec=\(grace)
            DrainEverySec=0
            LaunchTimeoutSec=600
            TerminateGraceSec=600
            BackgroundTaskMaxSec=600
            \(configuration)
            [Pressure]
            \(pressure)

            """
        try text.write(toFile: bus.directory + "/appstated.conf", atomically: true, encoding: .utf8)
        ready = try NotifySocket(in: bus.directory)
        daemon = try Self.start(bus, ready)
        connection = try Bus.open(address: bus.address)
    }

    private static func start(_ bus: PrivateBus, _ ready: NotifySocket) throws -> Child {
        let own = [
            "NOTIFY_SOCKET": ready.path, "RUNTIME_DIRECTORY": bus.directory + "/run",
            "STATE_DIRECTORY": bus.directory + "/state",
        ]
        let daemon = try Child(
            Programs.built("appstated") ?? "appstated", ["--config", bus.directory + "/appstated.conf"],
            environment: bus.environment.merging(own) { $1 })
        try ready.wait(for: "READY=1", from: daemon)
        return daemon
    }

    /// Ends the daemon with this signal.
    func endDaemon(_ signal: Int32) throws {
        daemon.kill(signal)
        try daemon.waitForExit()
    }

    /// Starts another daemon in its place.
    ///
    /// - Parameter forgets: the new daemon does not find the record of the previous one.
    func startDaemon(forgets: Bool = false) throws {
        if forgets {
            try FileManager.default.removeItem(atPath: bus.directory + "/run")
            mkdir(bus.directory + "/run", 0o700)
        }
        daemon = try Self.start(bus, ready)
    }

    // MARK: Calls

    @discardableResult
    func call(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        let message = try connection.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(message)
        return try connection.call(message, timeout: 300_000_000)
    }

    func setFocus(_ pid: Int32) throws {
        try call(BusNames.root, BusNames.reporter, "SetFocus") { try $0.append(UInt32(pid)) }
    }

    func setMinimized(_ pid: Int32, _ minimized: Bool) throws {
        try call(BusNames.root, BusNames.reporter, "SetMinimized") { message in
            try message.append(UInt32(pid))
            try message.append(minimized)
        }
    }

    func terminate(_ path: String, force: Bool) throws {
        try call(path, BusNames.application, "Terminate") { try $0.append(force) }
    }

    /// The object of a process; nil: it is not registered.
    func path(of pid: Int32) throws -> String? {
        do {
            return try call(BusNames.root, BusNames.manager, "GetApplicationByPID") {
                try $0.append(UInt32(pid))
            }.readObjectPath()
        } catch let failure as BusFailure where failure.name == ErrorName.noSuchApplication.rawValue {
            return nil
        }
    }

    /// The object of the application with an id.
    func path(ofID id: String) throws -> String {
        try call(BusNames.root, BusNames.manager, "GetApplicationByID") { try $0.append(id) }.readObjectPath()
    }

    /// The process of an application.
    func pid(of path: String) throws -> Int32 {
        guard case .uint32(let pid) = try property("PID", of: path) else { return 0 }
        return Int32(pid)
    }

    func property(_ name: String, of path: String) throws -> Variant {
        try call(path, BusNames.properties, "Get") { message in
            try message.append(BusNames.application)
            try message.append(name)
        }.readVariant()
    }

    func state(of path: String) throws -> String {
        guard case .string(let state) = try property("State", of: path) else { return "" }
        return state
    }

    /// The number of running background tasks.
    func tasks(of path: String) throws -> Int {
        guard case .array(_, let rows) = try property("BackgroundTasks", of: path) else { return -1 }
        return rows.count
    }

    func wait(for path: String, toBe state: String) throws {
        try wait("\(path) to be \(state)") { try self.state(of: path) == state }
    }

    /// Waits until the daemon knows that the application has ended.
    func waitForRemoval(of path: String) throws {
        try wait("the removal of \(path)") {
            do {
                _ = try self.state(of: path)
                return false
            } catch let failure as BusFailure {
                return failure.name == ErrorName.noSuchApplication.rawValue
            }
        }
    }

    func wait(_ what: String, until done: () throws -> Bool) throws {
        guard try eventually(done) else {
            throw TestFailure("timed out waiting for \(what)\n\(daemon.errors)")
        }
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The real daemon and the real agent on a private bus, and a subscriber. All of it ends when it is released.
final class Station {
    let bus: PrivateBus
    private(set) var daemon: Child?
    private(set) var agent: Child?
    let loop: EventLoop
    private let connection: Bus
    private var filter: Slot?
    private var edges: [String: [String]] = [:]
    private var removals: [String: String] = [:]
    /// The last removal of each application id.
    private var reasons: [String: String] = [:]
    private var sockets: [String: NotifySocket] = [:]

    static let isAvailable =
        PrivateBus.isAvailable && Programs.built("appstated") != nil
        && Programs.built("appstate-session") != nil
    static let whatIsMissing: Comment =
        "needs dbus-daemon, appstated and appstate-session built beside the tests"

    private let configuration: String
    private let sessions: [String: UInt32]

    /// Whether the user nobody can run the built programs.
    static let othersCanRun: Bool = {
        guard getuid() == 0, Programs.inPath("setpriv") != nil,
            let program = Programs.built("appstate-session"),
            let probe = try? Child(program, ["--version"], uid: TestDesktop.nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()
    static let whatOthersNeed: Comment = "needs root, setpriv, and programs that user nobody can run"

    /// Starts a bus and a daemon on it.
    ///
    /// - Parameters:
    ///   - configuration: additional configuration of the daemon.
    ///   - sessions: logind's sessions as the daemon sees them, with the user of each; empty: the machine's own.
    ///   - policy: additional policy of the bus.
    init(
        withDaemon: Bool = true, configuration: String = "", sessions: [String: UInt32] = [:],
        policy: String = ""
    ) throws {
        self.sessions = sessions
        // These tests do not depend on the memory of the machine.
        self.configuration =
            "[LifeCycle]\nDrainEverySec=0\n\(configuration)\n[Pressure]\nSource=/nonexistent\n"
        bus = try PrivateBus.forDaemon(policy: policy)
        loop = try EventLoop()
        connection = try Bus.open(address: bus.address)
        try connection.attach(to: loop)
        for name in ["daemon", "agent", "another", "run"] {
            mkdir("\(bus.directory)/\(name)", 0o755)
        }
        filter = try connection.addFilter { [weak self] message in
            if message.isSignal { self?.keep(message) }
            return false
        }
        if withDaemon { try startDaemon() }
    }

    // MARK: The programs

    /// Starts a daemon with the state that an earlier one saved, and subscribes to it.
    func startDaemon() throws {
        let file = bus.directory + "/appstated.conf"
        try configuration.write(toFile: file, atomically: true, encoding: .utf8)
        daemon = try start(
            "appstated", ["--config", file], in: "daemon", ["RUNTIME_DIRECTORY": bus.directory + "/run"],
            prefix: try login())
        try call(BusNames.manager, "Subscribe")
    }

    /// A command that runs a program with our sessions in the files that sd-login(3) reads.
    private func login() throws -> [String] {
        guard !sessions.isEmpty else { return [] }
        let directory = bus.directory + "/login"
        for kind in ["sessions", "users"] {
            try FileManager.default.createDirectory(
                atPath: directory + "/" + kind, withIntermediateDirectories: true)
        }
        for (id, uid) in sessions {
            try "UID=\(uid)\nUSER=\(uid)\n".write(
                toFile: directory + "/sessions/" + id, atomically: true, encoding: .utf8)
        }
        let bind = "mount --bind \"$0\" /run/systemd && exec \"$@\""
        return ["unshare", "--mount", "--", "sh", "-c", bind, directory]
    }

    func endDaemon(_ signal: Int32) throws {
        daemon?.kill(signal)
        try daemon?.waitForExit()
        daemon = nil
    }

    /// Starts an agent for a display. Without a configuration it adopts nothing.
    func startAgent(
        _ arguments: [String] = ["--verbose"], environment: [String: String?], uid: UInt32? = nil
    ) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        let own = try configuration(of: arguments, environment)
        while true {
            do {
                agent = try start("appstate-session", arguments + own, in: "agent", environment, uid: uid)
                return
            } catch let failure as TestFailure
                where Self.endsWithoutAnswer(failure) && ContinuousClock.now < deadline
            {
                // The service manager would start it again, too.
            }
        }
    }

    /// Whether an agent has ended because a compositor did not answer in time.
    private static func endsWithoutAnswer(_ failure: TestFailure) -> Bool {
        failure.description.contains("(exited(1))") && failure.description.contains("does not answer")
    }

    /// Starts another agent.
    func startAnotherAgent(
        _ arguments: [String] = ["--verbose"], environment: [String: String?], uid: UInt32? = nil
    ) throws -> Child {
        let own = try configuration(of: arguments, environment)
        return try start("appstate-session", arguments + own, in: "another", environment, uid: uid)
    }

    private func configuration(of arguments: [String], _ environment: [String: String?]) throws -> [String] {
        let isOwn = arguments.contains("--config") || environment["XDG_CONFIG_HOME"] != nil
        return isOwn ? [] : ["--config", try configureAgent("")]
    }

    /// Writes the agent's configuration; returns its file. Only what the text names is adopted.
    @discardableResult
    func configureAgent(_ text: String) throws -> String {
        let file = bus.directory + "/session.conf"
        let whole = text.contains("Adopt=") ? text : "[Session]\nAdopt=\n" + text
        try whole.write(toFile: file, atomically: true, encoding: .utf8)
        return file
    }

    /// Makes the agent read its configuration again and waits until it has.
    func reloadAgent(_ text: String) throws {
        try configureAgent(text)
        guard let agent, let ready = sockets["agent"] else { throw TestFailure("there is no agent") }
        agent.kill(SIGHUP)
        try ready.wait(for: "READY=1", from: agent)
    }

    private func start(
        _ program: String, _ arguments: [String], in name: String, _ environment: [String: String?],
        uid: UInt32? = nil, prefix: [String] = []
    ) throws -> Child {
        unlink("\(bus.directory)/\(name)/notify")
        let ready = try NotifySocket(in: "\(bus.directory)/\(name)")
        sockets[name] = ready
        let command = prefix + [Programs.built(program) ?? program] + arguments
        let more: [String: String?] = ["NOTIFY_SOCKET": ready.path].merging(environment) { $1 }
        let child = try Child(
            command[0], Array(command.dropFirst()), environment: bus.environment.merging(more) { $1 },
            uid: uid)
        try ready.wait(for: "READY=1", from: child)
        return child
    }

    // MARK: Calls

    @discardableResult
    func call(
        _ interface: String, _ member: String, _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        let message = try connection.newCall(
            destination: BusNames.service, path: BusNames.root, interface: interface, member: member)
        try body(message)
        return try connection.call(message, timeout: 300_000_000)
    }

    /// Registers a process; returns its path.
    func register(_ id: String, _ pid: Int32, suspension: String? = nil) throws -> String {
        try call(BusNames.manager, "Register") { message in
            try message.append(id)
            try message.append(UInt32(pid))
            try message.appendDictionary(suspension.map { [("suspension", .string($0))] } ?? [])
        }.readObjectPath()
    }

    struct Registered: Equatable {
        let path: String
        let id: String
        let pid: Int32
    }

    /// All registered applications.
    func applications() throws -> [Registered] {
        let message = try call(BusNames.manager, "ListApplications")
        var rows: [Registered] = []
        try message.withEntered(.array, "(osuus)") {
            while !message.atEnd {
                try message.withEntered(.struct, "osuus") {
                    rows.append(
                        Registered(
                            path: try message.readObjectPath(), id: try message.readString(),
                            pid: Int32(bitPattern: try message.readUInt32())))
                    try message.skip("us")
                }
            }
        }
        return rows
    }

    /// Waits until a process is registered; returns its path.
    func wait(forApplication id: String, _ pid: Int32) throws -> String {
        var found: Registered?
        try wait("\(id) with process \(pid)") {
            found = try self.applications().first { $0.id == id && $0.pid == pid }
            return found != nil
        }
        return found?.path ?? ""
    }

    func unregister(_ path: String) throws { try application(path, "Unregister") }

    func suspend(_ path: String) throws { try application(path, "Suspend") }

    private func application(_ path: String, _ member: String) throws {
        let message = try connection.newCall(
            destination: BusNames.service, path: path, interface: BusNames.application, member: member)
        _ = try connection.call(message, timeout: 300_000_000)
    }

    /// The answer of `ListObjections`. On a busy machine the daemon may have no time to look at the application: it is
    /// asked again.
    func objections(to path: String) throws -> [String] {
        var objections: [String] = []
        try wait("a look at \(path)") {
            let message = try connection.newCall(
                destination: BusNames.service, path: path, interface: BusNames.application,
                member: "ListObjections")
            objections = try connection.call(message, timeout: 300_000_000).readStrings()
            return !objections.contains { $0.contains("could not be examined in time") }
        }
        return objections
    }

    /// The windows of an application, each as its state and title.
    func windows(of path: String) throws -> [String] {
        let message = try connection.newCall(
            destination: BusNames.service, path: path, interface: BusNames.application, member: "ListWindows")
        let reply = try connection.call(message, timeout: 300_000_000)
        var rows: [String] = []
        try reply.withEntered(.array, "a{sv}") {
            while !reply.atEnd {
                let window = Dictionary(try reply.readDictionary().map { ($0.key, $0.value) }) { $1 }
                if case .string(let state)? = window["state"], case .string(let title)? = window["title"] {
                    rows.append("\(state) \(title)")
                }
            }
        }
        return rows
    }

    func activate(_ path: String) throws {
        let message = try connection.newCall(
            destination: BusNames.service, path: path, interface: BusNames.application, member: "Activate")
        try message.appendDictionary([])
        _ = try connection.call(message, timeout: 300_000_000)
    }

    func explain(_ path: String, _ key: String) throws -> Variant? {
        let message = try connection.newCall(
            destination: BusNames.service, path: path, interface: BusNames.application, member: "Explain")
        return try connection.call(message, timeout: 300_000_000).readDictionary().first { $0.0 == key }?.1
    }

    /// What needed the application when it was suspended last, and why.
    func lastDemand(of path: String) throws -> String? {
        guard case .string(let why)? = try explain(path, "last-demand") else { return nil }
        return why
    }

    func state(of path: String) throws -> String? {
        guard case .string(let state) = try property("State", of: path) else { return nil }
        return state
    }

    func property(_ name: String, of path: String) throws -> Variant {
        let message = try connection.newCall(
            destination: BusNames.service, path: path, interface: BusNames.properties, member: "Get")
        try message.append(BusNames.application)
        try message.append(name)
        return try connection.call(message, timeout: 300_000_000).readVariant()
    }

    // MARK: Signals

    /// The edges of an application since it was last asked for, in order: `from→to`.
    func walk(of path: String) -> [String] { edges[path] ?? [] }

    /// Waits until an application is in this state, and reads the edges that led there.
    func wait(for path: String, toBe state: String) throws {
        // It may have got there before the subscription.
        try wait("\(path) to be \(state)") { try self.state(of: path) == state }
        try readEdges()
    }

    /// Reads the signals that have arrived.
    func readEdges() throws { while try loop.runOnce(timeout: 0) {} }

    /// Waits until each of these applications has gone through these edges, and forgets them.
    func wait(forWalks walks: [String: [String]], _ what: String) throws {
        try wait("\(what): \(walks)") { walks.allSatisfy { self.walk(of: $0) == $1 } }
        forget()
    }

    /// Waits until an application is removed; returns the reason.
    func waitForRemoval(of path: String) throws -> String {
        try wait("the removal of \(path)") { self.removals[path] != nil }
        return removals[path] ?? ""
    }

    /// The reason, for an application that may be removed before anybody has seen its path.
    func waitForRemoval(ofID id: String) throws -> String {
        try wait("the removal of \(id)") { self.reasons[id] != nil }
        return reasons[id] ?? ""
    }

    func forget() { edges = [:] }

    /// How often signals were withheld because the subscriber did not read them: the edges may then have gaps.
    private(set) var resyncs = 0

    func wait(_ what: String, until done: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while try !done() {
            guard ContinuousClock.now < deadline else {
                _ = (agent?.advance(), daemon?.advance())
                throw TestFailure(
                    "\(what) did not happen; edges: \(edges)\n\(agent?.errors ?? "")\(daemon?.errors ?? "")")
            }
            try loop.runOnce(timeout: 100_000)
        }
    }

    private func keep(_ message: borrowing Message) {
        guard let path = message.path, let member = message.member, let interface = message.interface else {
            return
        }
        let arguments: [String]
        do {
            arguments = try Self.arguments(of: message, "\(interface).\(member)")
        } catch {
            arguments = ["unreadable", "\(error)"]
        }
        keep(path, arguments)
    }

    /// The states before and after, or the removed application and the reason. Nothing for other signals.
    ///
    /// Separate from `keep`: Swift 6.0.3 crashes where a dictionary of `self` is changed while a message is borrowed.
    private static func arguments(of message: borrowing Message, _ signal: String) throws -> [String] {
        var arguments: [String] = []
        if signal == "\(BusNames.application).StateChanged" {
            arguments = [try message.readString(), try message.readString()]
            try message.rewind()
        } else if signal == "\(BusNames.manager).ApplicationRemoved" {
            arguments = [try message.readObjectPath(), try message.readString()]
            try message.skip("u")
            arguments.append(try message.readString())
            try message.rewind()
        } else if signal == "\(BusNames.manager).Resync" {
            arguments = ["Resync"]
        }
        return arguments
    }

    private func keep(_ path: String, _ arguments: [String]) {
        guard let first = arguments.first, let last = arguments.last else { return }
        if arguments == ["Resync"] {
            resyncs += 1
        } else if path == BusNames.root {
            removals[first] = last
            reasons[arguments[1]] = last
        } else {
            edges[path, default: []].append("\(first)→\(last)")
        }
    }
}

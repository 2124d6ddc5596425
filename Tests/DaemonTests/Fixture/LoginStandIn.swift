import AppStateBus
import Foundation
import Glibc
import TestSupport

/// A small logind on the test's own bus: its name, its sessions, and below the daemon's own /run/systemd the files that
/// sd-login(3) reads. It answers while `client` waits for something.
final class LoginStandIn {
    static let name = "org.freedesktop.login1"
    static let path = "/org/freedesktop/login1"
    /// What the bus must allow it and others; on a real bus, systemd's own policy does.
    static let policy =
        "<policy user=\"\(getuid())\"><allow own=\"\(name)\"/></policy>"
        + "<policy context=\"default\"><allow send_destination=\"\(name)\"/></policy>"

    private final class Session {
        let path: String
        var slot: Slot?
        var isActive = true
        var isLocked = false
        /// How often its properties were read.
        var reads = 0

        init(path: String) { self.path = path }
    }

    let bus: Bus
    private let daemon: TestDaemon
    private let client: Client
    private var sessions: [String: Session] = [:]
    private var slots: [Slot] = []
    /// The inhibitors: what they inhibit, how, and which process holds them.
    var inhibitors: [(what: String, mode: String, pid: Int32)] = []
    /// The other end of the lock with which the daemon delays sleep: readable when the lock is released; nil: it was not
    /// taken.
    private(set) var delay: Int32?
    /// It receives calls and answers none.
    var isSilent = false
    /// The number of calls that it has received, answered or not.
    private(set) var calls = 0

    init(_ daemon: TestDaemon, _ client: Client) throws {
        self.daemon = daemon
        self.client = client
        bus = try Bus.open(address: daemon.bus.address)
        try bus.attach(to: client.loop)
        slots.append(
            try bus.addFilter { [unowned self] message in
                guard message.isMethodCall else { return false }
                calls += 1
                return isSilent
            })
        let manager = Interface(
            "org.freedesktop.login1.Manager",
            methods: [
                Method("GetSession", in: [("id", "s")], out: [("path", "o")]) { [unowned self] call in
                    let id = try call.message.readString()
                    guard let session = sessions[id] else {
                        throw MethodError("org.freedesktop.login1.NoSuchSession", "No session '\(id)' known")
                    }
                    try call.reply { try $0.append(objectPath: session.path) }
                },
                Method(
                    "Inhibit", in: [("what", "s"), ("who", "s"), ("why", "s"), ("mode", "s")],
                    out: [("fd", "h")]
                ) { [unowned self] call in
                    var ends: [Int32] = [-1, -1]
                    guard pipe(&ends) == 0 else { throw MethodError.failed("pipe") }
                    if let delay { Glibc.close(delay) }
                    delay = ends[0]
                    try call.reply { try $0.append(descriptor: ends[1]) }
                    Glibc.close(ends[1])
                },
                Method("ListInhibitors", out: [("inhibitors", "a(ssssuu)")]) { [unowned self] call in
                    try call.reply { message in
                        try message.withContainer(.array, "(ssssuu)") {
                            for inhibitor in inhibitors { try append(inhibitor, to: message) }
                        }
                    }
                },
            ])
        slots.append(try bus.add(manager, at: Self.path))
        for kind in ["sessions", "users"] {
            try FileManager.default.createDirectory(
                atPath: daemon.loginDirectory + "/" + kind, withIntermediateDirectories: true)
        }
        try come()
    }

    deinit { if let delay { Glibc.close(delay) } }

    private func append(
        _ inhibitor: (what: String, mode: String, pid: Int32), to message: borrowing Message
    ) throws(BusFailure) {
        try message.open(.struct, "ssssuu")
        for text in [inhibitor.what, "Somebody", "For a reason", inhibitor.mode] { try message.append(text) }
        try message.append(UInt32(0))
        try message.append(UInt32(inhibitor.pid))
        try message.close()
    }

    /// The daemon no longer delays sleep.
    var isReleased: Bool {
        var ready = pollfd(fd: delay ?? -1, events: Int16(POLLIN), revents: 0)
        return poll(&ready, 1, 0) > 0
    }

    /// Takes its name, which the bus announces to all that watch the name.
    func come() throws { try bus.requestName(Self.name) }

    /// Releases its name.
    func leave() throws { try bus.releaseName(Self.name) }

    // MARK: Sessions

    /// A session of a user begins.
    ///
    /// - Parameters:
    ///   - isDisplay: the session is its user's graphical session from now on.
    ///   - isSane: its properties have the right types.
    func open(_ id: String, uid: UInt32, isDisplay: Bool = true, isSane: Bool = true) throws {
        let session = Session(path: "\(Self.path)/session/_\(id)")
        let properties =
            isSane
            ? [
                Property("Active", "b", emits: .change) { [unowned session] message, _ in
                    session.reads += 1
                    try message.append(session.isActive)
                },
                Property("LockedHint", "b", emits: .change) { [unowned session] message, _ in
                    try message.append(session.isLocked)
                },
            ]
            : [
                Property("Active", "s", emits: .change) { [unowned session] message, _ in
                    session.reads += 1
                    try message.append("perhaps")
                }
            ]
        session.slot = try bus.add(
            Interface("org.freedesktop.login1.Session", properties: properties), at: session.path)
        sessions[id] = session
        try write("UID=\(uid)\nUSER=\(uid)\n", to: "sessions/\(id)")
        if isDisplay { try write("DISPLAY=\(id)\nSESSIONS=\(id)\n", to: "users/\(uid)") }
        try tell("SessionNew", id, session)
    }

    /// A session ends; its processes may live on.
    func close(_ id: String) throws {
        guard let session = sessions.removeValue(forKey: id) else { return }
        session.slot = nil
        try FileManager.default.removeItem(atPath: daemon.loginDirectory + "/sessions/" + id)
        try tell("SessionRemoved", id, session)
    }

    func switchTo(_ id: String, _ isActive: Bool) throws {
        sessions[id]?.isActive = isActive
        try change(id, [("Active", .bool(isActive))])
    }

    func lock(_ id: String, _ isLocked: Bool = true) throws {
        sessions[id]?.isLocked = isLocked
        try change(id, [("LockedHint", .bool(isLocked))])
    }

    /// Sends PropertiesChanged with any values, from logind or from another connection.
    func change(
        _ id: String, _ properties: [(String, Variant)], invalidated: [String] = [], by other: Bus? = nil,
        to destination: String? = nil
    ) throws {
        let bus = other ?? bus
        let signal = try bus.newSignal(
            path: sessions[id]?.path ?? "/", interface: "org.freedesktop.DBus.Properties",
            member: "PropertiesChanged", to: destination)
        try signal.append("org.freedesktop.login1.Session")
        try signal.appendDictionary(properties)
        try signal.append(strings: invalidated)
        try bus.send(signal)
    }

    /// The machine is about to sleep, or has woken up.
    func prepareForSleep(_ begins: Bool) throws { try prepare("PrepareForSleep", begins) }

    /// The machine is about to be shut down, or the shutdown is cancelled.
    func prepareForShutdown(_ begins: Bool) throws { try prepare("PrepareForShutdown", begins) }

    private func prepare(_ member: String, _ begins: Bool) throws {
        let signal = try bus.newSignal(
            path: Self.path, interface: "org.freedesktop.login1.Manager", member: member)
        try signal.append(begins)
        try bus.send(signal)
    }

    /// Waits until the daemon has asked about a session once more than `before`: what is sent now comes after the
    /// answer.
    func waitUntilAsked(about id: String, after before: Int = 0) throws {
        try client.wait("a question about session \(id)") { reads(of: id) > before }
    }

    func reads(of id: String) -> Int { sessions[id]?.reads ?? 0 }

    private func tell(_ member: String, _ id: String, _ session: Session) throws {
        let signal = try bus.newSignal(
            path: Self.path, interface: "org.freedesktop.login1.Manager", member: member)
        try signal.append(id)
        try signal.append(objectPath: session.path)
        try bus.send(signal)
    }

    private func write(_ text: String, to file: String) throws {
        try text.write(toFile: daemon.loginDirectory + "/" + file, atomically: true, encoding: .utf8)
    }
}

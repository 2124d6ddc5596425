import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

/// xfce4-session, with a session bus of its own. It ends when it is released.
final class XfceSession {
    static let isAvailable = Programs.inPath("xfce4-session") != nil

    /// The session bus, from which the session starts its other services.
    let address: String
    private let bus: Child
    private let client: Bus
    private let home: String
    private var process: Child?

    /// Starts the bus alone: some clients of the session come first.
    init() throws {
        bus = try Child("dbus-daemon", ["--session", "--nofork", "--print-address"])
        address = try bus.waitForLine(containing: "unix:")
        client = try Bus.open(address: address)
        home = try TestDesktop.directory()
    }

    /// The environment of the session and its clients on a display.
    func environment(on display: Display) -> [String: String?] {
        display.environment.merging([
            "DBUS_SESSION_BUS_ADDRESS": address, "HOME": home, "XDG_RUNTIME_DIR": home,
            "ICEAUTHORITY": home + "/ICEauthority",
        ]) { $1 }
    }

    deinit { try? FileManager.default.removeItem(atPath: home) }

    /// Starts the session manager; answers its process.
    @discardableResult
    func start(on display: Display) throws -> Int32 {
        let child = try Child("xfce4-session", [], environment: environment(on: display))
        process = child
        return child.pid
    }

    /// Calls the session manager. It refuses while it is still starting, and answers nothing while it asks its clients.
    ///
    /// - Returns: whether it has accepted.
    @discardableResult
    func ask(_ member: String, _ arguments: (borrowing Message) throws -> Void) throws -> Bool {
        guard try client.owner(of: "org.xfce.SessionManager") != nil else { return false }
        let call = try client.newCall(
            destination: "org.xfce.SessionManager", path: "/org/xfce/SessionManager",
            interface: "org.xfce.Session.Manager", member: member)
        try arguments(call)
        return (try? client.call(call)) != nil
    }
}

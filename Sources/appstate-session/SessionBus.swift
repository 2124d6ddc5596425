import AppStateBus
import Glibc
import Linux
import Systemd

/// The agent's one ordinary connection to the session bus, which all share that call, listen or answer there. What the
/// bus shows to monitors only arrives by another one: `SessionMonitor`.
///
/// A connection is made when it is needed. As long as somebody follows it, it is made again after it was lost.
final class SessionBus {
    let address: String?
    private let loop: EventLoop
    private let journal: Journal
    private var bus: Bus?
    private var followers: [(Bus?) -> Void] = []
    private var reconnection: Retry?

    /// - Parameter address: the address of the session bus; nil: there is none.
    init(address: String?, loop: EventLoop, journal: Journal) {
        self.address = address
        self.loop = loop
        self.journal = journal
    }

    /// The address of the session bus. Nil: there is none.
    static var ownAddress: String? { Environment["DBUS_SESSION_BUS_ADDRESS"] ?? userAddress }

    /// The address of the user's bus, which all sessions of the user share. Without it, the address of the session bus.
    static var userAddress: String? {
        guard let path = Environment["XDG_RUNTIME_DIR"].map({ $0 + "/bus" }), access(path, W_OK) == 0 else {
            return Environment["DBUS_SESSION_BUS_ADDRESS"]
        }
        return "unix:path=\(path)"
    }

    /// The name of the first local socket in a bus's address, as in `sun_path` of unix(7), with `@` before an abstract
    /// one: `unix:path=…`, `unix:abstract=…` (D-Bus specification, "Server Addresses").
    static func socket(of address: String) -> String? {
        for entry in address.split(separator: ";") where entry.hasPrefix("unix:") {
            for pair in entry.dropFirst("unix:".count).split(separator: ",") {
                if pair.hasPrefix("path=") { return String(pair.dropFirst("path=".count)) }
                if pair.hasPrefix("abstract=") { return "@" + pair.dropFirst("abstract=".count) }
            }
        }
        return nil
    }

    /// The connection.
    ///
    /// - Throws: if there is no bus.
    func connection() throws(BusFailure) -> Bus {
        if let bus, bus.isOpen { return bus }
        bus = nil
        guard let address else {
            throw BusFailure(
                operation: "connect to", subject: "the session bus", errno: 0, message: "there is none")
        }
        let bus = try Bus.open(address: address)
        try bus.attach(to: loop)
        // The connection is not closed in its own handler.
        try bus.onDisconnect { [unowned self] in
            journal.log(.info, "the session bus has ended")
            tell(nil)
        }
        self.bus = bus
        reconnection?.hasSucceeded()
        tell(bus)
        return bus
    }

    /// Keeps a connection.
    ///
    /// - Parameter changed: gets the connection, at once if possible, and each that follows; nil: there is none now.
    func follow(_ changed: @escaping (Bus?) -> Void) throws(BusFailure) {
        if reconnection == nil {
            let socket = address.flatMap(Self.socket(of:))
            let path = socket?.hasPrefix("/") == true ? socket : nil
            reconnection = try Retry(loop, after: 100_000, socket: path) { [unowned self] in connect() }
        }
        let bus = bus.flatMap { $0.isOpen ? $0 : nil }
        followers.append(changed)
        if let bus { changed(bus) } else { connect() }
    }

    private func tell(_ bus: Bus?) {
        for follower in followers { follower(bus) }
        if bus == nil { tryAgain() }
    }

    private func connect() {
        do throws(BusFailure) {
            _ = try connection()
        } catch {
            journal.log(.debug, "\(error)")
            tryAgain()
        }
    }

    private func tryAgain() { if address != nil { reconnection?.schedule() } }
}

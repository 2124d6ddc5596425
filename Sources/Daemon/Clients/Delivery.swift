import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// A signal and its object.
struct SignalName {
    let path: String
    let interface: String
    let member: String

    static func manager(_ signal: ManagerSignal) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.manager, member: signal.rawValue)
    }

    static func objects(_ member: String) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.objectManager, member: member)
    }
}

/// Sends signals to each entitled connection separately. Nothing is broadcast, so that other users of the
/// machine get no information from the bus.
///
/// Nothing is sent to a suspended process: it does not read, and what the bus keeps for it counts against its whole user.
/// It gets `Resync` when it runs again.
final class Delivery {
    private let bus: Bus
    private let connections: Connections
    private let journal: Journal
    /// Whether the process behind a connection runs.
    private let isReachable: (Connection) -> Bool
    /// The connections that have missed a signal.
    private var withheld: Set<ConnectionName> = []

    init(
        bus: Bus, connections: Connections, journal: Journal, isReachable: @escaping (Connection) -> Bool
    ) {
        self.bus = bus
        self.connections = connections
        self.journal = journal
        self.isReachable = isReachable
    }

    /// Sends a signal of an object to the connections that `wants` picks.
    func send(
        _ signal: SignalName, to wants: (Connection) -> Bool, _ body: (borrowing Message) throws -> Void
    ) {
        sendEach(signal, to: wants) { message, _ in try body(message) }
    }

    /// The same, where what a connection is sent depends on the connection.
    func sendEach(
        _ signal: SignalName, to wants: (Connection) -> Bool,
        _ body: (borrowing Message, Connection) throws -> Void
    ) {
        for connection in connections.all where wants(connection) {
            if !withheld.contains(connection.name), isReachable(connection) {
                post(signal, to: connection) { try body($0, connection) }
            } else {
                withheld.insert(connection.name)
            }
        }
    }

    /// Sends a signal to one connection, whether or not its process runs. The life cycle has decided that a delegate can
    /// read it.
    func post(
        _ signal: SignalName, to connection: Connection, _ body: (borrowing Message) throws -> Void
    ) {
        journal.attempt(.warning, "cannot send \(signal.member) of \(signal.path) to \(connection.name)") {
            let message = try bus.newSignal(
                path: signal.path, interface: signal.interface, member: signal.member, to: connection.name)
            try body(message)
            try bus.send(message)
        }
    }

    /// Sends `Resync` to the connections whose process runs again and that have missed something. Must be called after
    /// each step.
    func resyncReachable() {
        for name in withheld {
            guard let connection = connections[name] else {
                withheld.remove(name)
                continue
            }
            guard isReachable(connection) else { continue }
            withheld.remove(name)
            post(.manager(.resync), to: connection) { _ in }
        }
    }
}

import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// Which signal of which object.
struct SignalName {
    let path: String
    let interface: String
    let member: String

    static func manager(_ signal: ManagerSignal) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.manager, member: signal.rawValue)
    }

    static func reporter(_ signal: ReporterSignal) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.reporter, member: signal.rawValue)
    }

    static func objects(_ member: String) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.objectManager, member: member)
    }
}

/// Sends signals to those who are entitled to them, each by itself: nothing is broadcast, so that other
/// users of the machine learn nothing from the bus.
final class Delivery {
    private let bus: Bus
    private let connections: Connections
    private let journal: Journal
    /// Whether the process behind a connection runs: a suspended one is sent nothing.
    private let isReachable: (Connection) -> Bool
    private var withheld: Set<ConnectionName> = []
    /// What each user's connections were sent in this step.
    private var sent: [UInt32: Int] = [:]
    /// A desktop's few subscribers are told everything of its applications; 64 that one user makes are told to read again.
    private static let mostInStep = 384

    init(bus: Bus, connections: Connections, journal: Journal, isReachable: @escaping (Connection) -> Bool) {
        self.bus = bus
        self.connections = connections
        self.journal = journal
        self.isReachable = isReachable
    }

    /// A signal of an object to those that `wants` picks.
    func send(
        _ signal: SignalName, to wants: (Connection) -> Bool, _ body: (borrowing Message) throws -> Void
    ) {
        for connection in connections.all where wants(connection) {
            send(signal, to: connection, body)
        }
    }

    /// A signal to one connection, unless it does not read.
    func send(
        _ signal: SignalName, to connection: Connection, _ body: (borrowing Message) throws -> Void
    ) {
        guard !connection.flow.isWithheld, sent[connection.user, default: 0] < Self.mostInStep,
            isReachable(connection)
        else {
            withhold(connection)
            return
        }
        sent[connection.user, default: 0] += 1
        post(signal, to: connection, body)
        keepFlow(connection)
    }

    /// A signal to the delegate: whether it can read it was the life cycle's to decide.
    func sendToDelegate(
        _ signal: SignalName, to connection: Connection, _ body: (borrowing Message) throws -> Void
    ) {
        if connection.flow.isCutOff { return }
        post(signal, to: connection, body)
        keepFlow(connection)
    }

    /// To be called after each step, and after whatever else has sent many signals.
    func stepHasEnded() {
        sent = [:]
        resyncReachable()
    }

    /// Those that can read again are told that they missed something.
    private func resyncReachable() {
        for name in withheld {
            guard let connection = connections[name] else {
                withheld.remove(name)
                continue
            }
            if connection.flow.ping == nil, isReachable(connection) { resync(connection) }
        }
    }

    /// What a connection may see has changed: its picture of it is out of date.
    func haveReadAgain(_ connection: Connection) {
        withhold(connection)
        resyncReachable()
    }

    private func withhold(_ connection: Connection) {
        connection.flow.isWithheld = true
        withheld.insert(connection.name)
    }

    private func resync(_ connection: Connection) {
        connection.flow.isWithheld = false
        connection.flow.sent = 0
        withheld.remove(connection.name)
        post(.manager(.resync), to: connection) { _ in }
    }

    private func post(
        _ signal: SignalName, to connection: Connection, _ body: (borrowing Message) throws -> Void
    ) {
        journal.attempt(.warning, "signal \(signal.member) of \(signal.path) to \(connection.name)") {
            let message = try bus.newSignal(
                path: signal.path, interface: signal.interface, member: signal.member, to: connection.name)
            try body(message)
            try bus.send(message)
        }
    }

    /// Every so many signals the connection is pinged; while it does not answer, no more than as many again
    /// are sent.
    private func keepFlow(_ connection: Connection) {
        connection.flow.sent += 1
        guard connection.flow.sent >= Connection.Flow.window else { return }
        if connection.flow.ping != nil {
            withhold(connection)
            return
        }
        connection.flow.sent = 0
        journal.attempt(.warning, "ping of \(connection.name)") {
            let ping = try bus.newCall(
                destination: connection.name, path: "/", interface: "org.freedesktop.DBus.Peer",
                member: "Ping")
            connection.flow.ping = try bus.callAsync(ping, timeout: .max) { [weak self, weak connection] _ in
                // Whatever it answers, it reads.
                guard let connection else { return }
                connection.flow.ping = nil
                connection.flow.sent = 0
                // A suspended one's process may have answered before it stopped: it waits for the step.
                if let self, connection.flow.isWithheld, isReachable(connection) { resync(connection) }
            }
        }
    }
}

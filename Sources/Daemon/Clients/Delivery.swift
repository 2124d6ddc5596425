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

    static func reporter(_ signal: ReporterSignal) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.reporter, member: signal.rawValue)
    }

    static func objects(_ member: String) -> SignalName {
        SignalName(path: BusNames.root, interface: BusNames.objectManager, member: member)
    }
}

/// Sends signals to each entitled connection separately. Nothing is broadcast, so that other users of the
/// machine get no information from the bus.
final class Delivery {
    private let bus: Bus
    private let connections: Connections
    private let journal: Journal
    /// Whether the process behind a connection runs. Nothing is sent to a suspended process.
    private let isReachable: (Connection) -> Bool
    private var withheld: Set<ConnectionName> = []
    /// What each user's connections were sent in this step.
    private var sent: [UInt32: Load] = [:]
    /// Enough to send the few subscribers of a desktop everything about its applications. If one user creates
    /// 64 subscribers, they get `Resync`.
    private static let mostInStep = 384
    /// The most that these signals carry. The signal that reaches the limit is sent.
    private static let mostWeightInStep = 640 << 10
    private let share: WorkShare
    private var unread = UnreadSignals()
    /// The most pings that one user's connections may leave unanswered. The bus takes 128 unanswered calls of ours in
    /// all: dbus-daemon(1), "max_replies_per_connection".
    private static let mostPings = 24
    /// The most that all connections may leave unanswered. The rest is for session agents (`Agents`).
    private static let mostPingsInAll = 32
    /// A user with fewer unanswered pings than `fewPings` finds room even when others have filled the normal limit.
    private static let (fewPings, mostPingsWithFew) = (4, 48)
    /// Until another ping is sent after the bus had no room for one.
    private static let pause: Microseconds = 1_000_000
    /// Calls `resyncReachable` at the end of the pause. On a quiet machine, nothing else would.
    var timer: Timer?
    private let now: () -> Microseconds

    private struct Load {
        var signals = 0
        var weight = 0
    }

    /// What a signal carries.
    private struct Size {
        let bytes: Int
        /// What it costs to write it and to send it, in bytes of a long text.
        let weight: Int

        /// What one value costs besides its bytes.
        private static let weightOfValue = 32

        init(_ message: borrowing Message) throws(BusFailure) {
            let (bytes, values) = try message.measure()
            self.bytes = bytes
            weight = bytes + Self.weightOfValue * values
        }
    }

    init(
        bus: Bus, connections: Connections, journal: Journal, now: @escaping () -> Microseconds,
        share: WorkShare, isReachable: @escaping (Connection) -> Bool
    ) {
        self.now = now
        self.share = share
        self.bus = bus
        self.connections = connections
        self.journal = journal
        self.isReachable = isReachable
    }

    /// Sends a signal of an object to the connections that `wants` picks.
    ///
    /// - Parameter owner: the user who is charged for what the bus must pass on; nil: nobody.
    func send(
        _ signal: SignalName, of owner: UInt32? = nil, to wants: (Connection) -> Bool,
        _ body: (borrowing Message) throws -> Void
    ) {
        sendEach(signal, of: owner, to: wants) { message, _ in try body(message) }
    }

    /// The same, where what a connection is sent depends on the connection. It is much the same for all of them.
    func sendEach(
        _ signal: SignalName, of owner: UInt32?, to wants: (Connection) -> Bool,
        _ body: (borrowing Message, Connection) throws -> Void
    ) {
        var size: Size?
        var count = 0
        for connection in connections.all where wants(connection) {
            if send(signal, to: connection, &size, { try body($0, connection) }) { count += 1 }
        }
        charge(size, times: count, to: owner)
    }

    /// Sends a signal to one connection, unless it does not read.
    func send(
        _ signal: SignalName, of owner: UInt32?, to connection: Connection,
        _ body: (borrowing Message) throws -> Void
    ) {
        var size: Size?
        if send(signal, to: connection, &size, body) { charge(size, times: 1, to: owner) }
    }

    /// - Parameter size: of the signal; found out if it is not known yet.
    /// - Returns: whether it was sent.
    private func send(
        _ signal: SignalName, to connection: Connection, _ size: inout Size?,
        _ body: (borrowing Message) throws -> Void
    ) -> Bool {
        let load = sent[connection.user] ?? Load()
        guard !connection.flow.isWithheld, load.signals < Self.mostInStep,
            load.weight < Self.mostWeightInStep, !unread.isFull(connection), isReachable(connection)
        else {
            withhold(connection)
            return false
        }
        post(signal, to: connection, &size, body)
        sent[connection.user] = Load(
            signals: load.signals + 1, weight: load.weight + (size?.weight ?? 0))
        keepFlow(connection)
        return true
    }

    /// Sends a signal to the delegate. The life cycle has decided that the delegate can read it.
    func sendToDelegate(
        _ signal: SignalName, of owner: UInt32, to connection: Connection,
        _ body: (borrowing Message) throws -> Void
    ) {
        if connection.flow.isCutOff { return }
        if unread.isFull(connection) { return withhold(connection) }
        var size: Size?
        post(signal, to: connection, &size, body)
        charge(size, times: 1, to: owner)
        keepFlow(connection)
    }

    private func charge(_ size: Size?, times count: Int, to owner: UInt32?) {
        guard let size, let owner else { return }
        share.charge(handingOn: size.bytes * count, to: owner, at: now())
    }

    /// Must be called after each step, and after anything else that has sent many signals.
    func stepHasEnded() {
        sent = [:]
        resyncReachable()
    }

    /// The signals that it has not read are gone.
    func departed(_ name: ConnectionName) { unread.departed(name) }

    /// Sends `Resync` to the connections that can read again and have missed something.
    func resyncReachable() {
        if withheld.isEmpty { return }
        var pings = Pings(connections)
        for name in withheld {
            guard let connection = connections[name] else {
                withheld.remove(name)
                continue
            }
            // Looking whether it is reachable takes longest.
            guard connection.flow.ping == nil, mayBePinged(connection, pings), isReachable(connection) else {
                continue
            }
            guard isPingDue(connection) || unread.isFull(connection) else {
                resync(connection)
                continue
            }
            // Its answer shows whether it reads.
            ping(connection)
            pings = Pings(connections)
        }
    }

    /// Makes a connection read everything again, because its list of visible applications is out of date.
    func haveReadAgain(_ connection: Connection) {
        withhold(connection)
        resyncReachable()
    }

    /// How many pings are not answered.
    private struct Pings {
        var ofUser: [UInt32: Int] = [:]
        var inAll = 0

        init(_ connections: Connections) {
            for connection in connections.all where connection.flow.ping != nil {
                ofUser[connection.user, default: 0] += 1
                inAll += 1
            }
        }
    }

    private func mayBePinged(_ connection: Connection, _ pings: Pings) -> Bool {
        let own = pings.ofUser[connection.user] ?? 0
        let most = own < Self.fewPings ? Self.mostPingsWithFew : Self.mostPingsInAll
        return own < Self.mostPings && pings.inAll < most && now() >= connection.flow.notBefore
    }

    private func withhold(_ connection: Connection) {
        connection.flow.isWithheld = true
        withheld.insert(connection.name)
    }

    private func resync(_ connection: Connection) {
        connection.flow.isWithheld = false
        // A connection that does not read may get one in each step.
        connection.flow.sent += 1
        withheld.remove(connection.name)
        var size: Size?
        post(.manager(.resync), to: connection, &size) { _ in }
    }

    private func post(
        _ signal: SignalName, to connection: Connection, _ size: inout Size?,
        _ body: (borrowing Message) throws -> Void
    ) {
        journal.attempt(.warning, "cannot send \(signal.member) of \(signal.path) to \(connection.name)") {
            let message = try bus.newSignal(
                path: signal.path, interface: signal.interface, member: signal.member, to: connection.name)
            try body(message)
            try bus.send(message)
            if size == nil { size = try Size(message) }
            if let size, connections[connection.name] === connection {
                unread.charge(size.bytes, to: connection)
            }
        }
    }

    /// Whether it was sent so much that it must show that it reads.
    private func isPingDue(_ connection: Connection) -> Bool {
        connection.flow.sent >= Connection.Flow.window || unread.isPingDue(of: connection)
    }

    /// Pings the connection after every `window` signals, and earlier if they are long. While it does not answer, it is
    /// sent at most as many again.
    private func keepFlow(_ connection: Connection) {
        connection.flow.sent += 1
        guard isPingDue(connection) else { return }
        if connection.flow.ping == nil, mayBePinged(connection, Pings(connections)) {
            ping(connection)
        } else if connection.flow.sent >= Connection.Flow.window {
            withhold(connection)
        }
    }

    private func ping(_ connection: Connection) {
        connection.flow.sent = 0
        journal.attempt(.warning, "cannot ping \(connection.name)") {
            let ping = try bus.newCall(
                destination: connection.name, path: "/", interface: "org.freedesktop.DBus.Peer",
                member: "Ping")
            connection.flow.ping = try bus.callAsync(ping, timeout: .max) {
                [weak self, weak connection] reply in
                let (sender, error) = (reply.sender, reply.error)
                guard let connection else { return }
                connection.flow.ping = nil
                if let self, sender == Bus.driver, error?.isNoRoom == true {
                    // There are too many unanswered calls, so this one has not reached the connection.
                    connection.flow.sent = Connection.Flow.window
                    connection.flow.notBefore = now() + Self.pause
                    timer?.arm(at: connection.flow.notBefore)
                    return withhold(connection)
                }
                // Any other answer shows that the connection reads.
                connection.flow.sent = 0
                self?.unread.answered(connection.name)
                // A process that is suspended now may have answered before it was stopped: its connection waits for the
                // step.
                if let self, connection.flow.isWithheld, isReachable(connection) { resync(connection) }
                // Others may have waited until one more could be pinged.
                self?.resyncReachable()
            }
            unread.pinged(connection.name)
        }
    }
}

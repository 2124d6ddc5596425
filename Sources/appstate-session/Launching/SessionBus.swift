import AppStateBus
import Systemd

/// The session bus, for occasional calls. A connection is made when it is needed, and again after it was lost.
final class SessionBus {
    private let address: String?
    private let loop: EventLoop
    private let journal: Journal
    private var bus: Bus?

    /// - Parameter address: the address of the session bus; nil: there is none.
    init(address: String?, loop: EventLoop, journal: Journal) {
        self.address = address
        self.loop = loop
        self.journal = journal
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
        try bus.onDisconnect { [journal] in journal.log(.info, "the session bus has ended") }
        self.bus = bus
        return bus
    }
}

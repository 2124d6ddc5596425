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
    /// Reports that the bus's socket may have appeared, while there is no bus.
    private var arrival: (watch: PathWatch, source: Source)?

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
        // The connection is not closed in its own handler.
        try bus.onDisconnect { [unowned self] in
            journal.log(.info, "the session bus has ended")
            tell(nil)
        }
        self.bus = bus
        arrival = nil
        reconnection?.hasSucceeded()
        tell(bus)
        return bus
    }

    /// Keeps a connection.
    ///
    /// - Parameter changed: gets the connection, at once if possible, and each that follows; nil: there is none now.
    func follow(_ changed: @escaping (Bus?) -> Void) throws(BusFailure) {
        if reconnection == nil {
            reconnection = try Retry(loop, after: 100_000) { [unowned self] in connect() }
        }
        let bus = bus.flatMap { $0.isOpen ? $0 : nil }
        followers.append(changed)
        if let bus { changed(bus) } else { connect() }
    }

    private func tell(_ bus: Bus?) {
        for follower in followers { follower(bus) }
        if bus == nil, !followers.isEmpty { tryAgain() }
    }

    private func connect() {
        do throws(BusFailure) {
            _ = try connection()
        } catch {
            journal.log(.debug, "\(error)")
            tryAgain()
        }
    }

    private func tryAgain() {
        guard let address else { return }
        reconnection?.schedule()
        guard arrival == nil, let path = DisplayServer.socket(ofBus: address), path.hasPrefix("/") else {
            return
        }
        do {
            let watch = try PathWatch(path: path)
            let source = try loop.watch(watch.descriptor) { [unowned self] _ in
                watch.dispatch()
                guard access(path, F_OK) == 0 else { return }
                reconnection?.reset()
                connect()
            }
            arrival = (watch, source)
        } catch {
            journal.log(.debug, "\(error)")
        }
    }
}

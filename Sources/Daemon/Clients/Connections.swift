import AppStateBus
import LifeCycle
import Linux
import Systemd

/// The connections that have called the daemon, until they leave the bus.
final class Connections {
    private let bus: Bus
    private let proc: Proc
    private let journal: Journal
    private let core: Core
    private var known: [ConnectionName: Connection] = [:]
    private var watches: [ConnectionName: Slot] = [:]
    /// One match rule for all connections, once there are more than `ownRules`.
    private var generalWatch: Slot?

    /// dbus-daemon's `max_match_rules_per_connection` is 512 on a system bus; the rest is for other rules.
    private static let ownRules = 256

    init(bus: Bus, proc: Proc, journal: Journal, core: Core) {
        self.bus = bus
        self.proc = proc
        self.journal = journal
        self.core = core
    }

    var all: Dictionary<ConnectionName, Connection>.Values { known.values }

    subscript(_ name: ConnectionName) -> Connection? { known[name] }

    /// The connection with this name. If it is new, this waits for the bus to identify it.
    ///
    /// Throws a `BusFailure` if the bus cannot be asked or the connection has left, and a `KernelFailure` if the process
    /// cannot be examined for now.
    func connection(named name: ConnectionName) throws -> Connection {
        if let connection = known[name] { return connection }
        // The watch is set up before the query, so that the connection cannot end unnoticed between the two.
        try watch(name)
        do {
            var credentials = try bus.credentials(of: name)
            let connection = try Connection(name: name, credentials: &credentials, proc: proc)
            known[name] = connection
            return connection
        } catch {
            watches[name] = nil
            throw error
        }
    }

    private func watch(_ name: ConnectionName) throws(BusFailure) {
        if watches.count < Self.ownRules {
            watches[name] = try watchDeparture(of: name)
        } else if generalWatch == nil {
            generalWatch = try watchDeparture(of: nil)
        }
    }

    /// An unhandled error about a rule that the bus refuses would close the connection.
    private func watchDeparture(of name: ConnectionName?) throws(BusFailure) -> Slot {
        try bus.watchOwner(
            of: name, onlyLost: true,
            failed: { [journal] error in
                journal.log(
                    .error, "cannot watch for clients that leave the bus (\(name ?? "all")): \(error)")
            },
            handler: { [weak self] name, _ in self?.departed(name) })
    }

    private func departed(_ name: ConnectionName) {
        guard known.removeValue(forKey: name) != nil else { return }
        watches[name] = nil
        if known.count < Self.ownRules / 2, known.keys.allSatisfy({ watches[$0] != nil }) {
            generalWatch = nil
        }
        core.report(.disconnected(name))
    }
}

import AppStateBus
import LifeCycle
import Linux
import Systemd

/// All connections that have called us, until they leave.
final class Connections {
    private let bus: Bus
    /// A connection of its own: an answer that is waited for must not come behind all that others have sent us.
    private let inquiries: Bus
    private let proc: Proc
    private let journal: Journal
    /// Called when one of them has left the bus.
    var left: (ConnectionName) -> Void = { _ in }
    private var known: [ConnectionName: Connection] = [:]
    private var watches: [ConnectionName: [Slot]] = [:]
    /// One rule for all, once there are more than `ownRules`.
    private var generalWatch: [Slot]?
    /// Questions whether those are gone indeed of whom it was heard beside the calls.
    private var questions: [ConnectionName: Slot] = [:]

    /// dbus-daemon's `max_match_rules_per_connection` is 512 on a system bus; the rest is for others.
    private static let ownRules = 256

    /// - Parameters:
    ///   - bus: the connection on which calls come.
    ///   - inquiries: one that nobody calls.
    init(bus: Bus, inquiries: Bus, proc: Proc, journal: Journal) {
        self.bus = bus
        self.inquiries = inquiries
        self.proc = proc
        self.journal = journal
    }

    var all: Dictionary<ConnectionName, Connection>.Values { known.values }

    subscript(_ name: ConnectionName) -> Connection? { known[name] }

    /// The connection of that name; asks the bus who it is when it is new.
    ///
    /// Throws a `BusFailure` when it has left, and a `KernelFailure` when it cannot be looked at for now.
    func connection(named name: ConnectionName) throws -> Connection {
        if let connection = known[name] { return connection }
        // Watched before it is asked for, so that its end cannot fall between the two.
        try watch(name)
        do {
            let credentials = try inquiries.credentials(of: name)
            let connection = try Connection(name: name, credentials: credentials, proc: proc)
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

    /// Its end is told behind its last call, where calls come; and where it is asked for, so that it is told in any case.
    private func watchDeparture(of name: ConnectionName?) throws(BusFailure) -> [Slot] {
        [
            try watchDeparture(of: name, on: bus) { [weak self] in self?.departed($0) },
            try watchDeparture(of: name, on: inquiries) { [weak self] in self?.confirmDeparture(of: $0) },
        ]
    }

    /// A rule that the bus refuses would close the connection where nobody takes the error.
    private func watchDeparture(
        of name: ConnectionName?, on bus: Bus, _ handler: @escaping (ConnectionName) -> Void
    ) throws(BusFailure) -> Slot {
        try bus.watchOwner(
            of: name, onlyLost: true,
            failed: { [journal] error in
                journal.log(.error, "the bus does not tell who leaves it (\(name ?? "all")): \(error)")
            },
            handler: { name, _ in handler(name) })
    }

    /// The answer comes behind all calls that it has made.
    private func confirmDeparture(of name: ConnectionName) {
        guard known[name] != nil, questions[name] == nil else { return }
        questions[name] = try? bus.askProcess(of: name) { [weak self] _ in self?.departed(name) }
    }

    private func departed(_ name: ConnectionName) {
        questions[name] = nil
        guard known.removeValue(forKey: name) != nil else { return }
        watches[name] = nil
        if known.count < Self.ownRules / 2 { generalWatch = generalWatch.flatMap { _ in stillNeeded() } }
        left(name)
    }

    /// The general rule stays while a connection without one of its own is left.
    private func stillNeeded() -> [Slot]? {
        known.keys.contains { watches[$0] == nil } ? generalWatch : nil
    }
}

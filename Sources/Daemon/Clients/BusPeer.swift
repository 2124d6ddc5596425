import AppStateBus
import Systemd

/// A service on the bus: the one place that knows who has its name, so that nobody else's signals are taken for its
/// own.
///
/// Nothing waits for it: it may be away, come back, or never answer.
final class BusPeer {
    let name: String
    let bus: Bus
    private let journal: Journal
    private var slots: [Slot] = []
    private var question: Slot?
    /// The connection that has the name; nil: nobody has it, or it is not known yet.
    private(set) var owner: String?
    /// Called when another connection has the name, or none; at first when it is known who has it.
    var ownerChanged: () -> Void = {}

    init(_ name: String, bus: Bus, journal: Journal) {
        self.name = name
        self.bus = bus
        self.journal = journal
    }

    /// Watches the name, and asks who has it.
    func start() throws(BusFailure) {
        slots.append(
            try bus.watchOwner(of: name, failed: complain) { [weak self] _, owner in
                // It is newer than the answer that is under way.
                self?.question = nil
                self?.owned(by: owner)
            })
        let asked = try bus.newDriverCall("GetNameOwner")
        try asked.append(name)
        question = try bus.callAsync(asked) { [weak self] reply in
            self?.question = nil
            self?.owned(by: reply.isError ? nil : try? reply.readString())
        }
    }

    private func owned(by connection: String?) {
        owner = connection
        ownerChanged()
    }

    /// Calls `handler` for its own signals of this kind.
    ///
    /// - Parameter rule: the rest of the match rule, after type and sender.
    func onSignal(_ rule: String, _ handler: @escaping (borrowing Message) -> Void) throws(BusFailure) {
        slots.append(
            try bus.match("type='signal',sender='\(name)',\(rule)", failed: complain) {
                [weak self] message in
                // The rule decides what the bus sends on; anybody may address a signal to us directly.
                guard let self, let owner, message.sender == owner else { return }
                handler(message)
            })
    }

    /// A rule that the bus refuses would close the connection where nobody takes the error.
    private func complain(_ error: MethodError) {
        journal.log(.error, "the bus does not tell of \(name): \(error)")
    }
}

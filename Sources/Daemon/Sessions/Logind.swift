import AppStateBus

/// org.freedesktop.login1 on the system bus: the one place that knows who has the name, so that nobody else's
/// signals are taken for logind's.
///
/// Nothing waits for it: it may be away, come back, or never answer.
final class Logind {
    static let name = "org.freedesktop.login1"
    static let path = "/org/freedesktop/login1"
    static let manager = "org.freedesktop.login1.Manager"
    static let session = "org.freedesktop.login1.Session"
    static let sessions = "/org/freedesktop/login1/session"
    /// What logind answers about a session that is no more.
    static let noSuchSession = "org.freedesktop.login1.NoSuchSession"

    private let bus: Bus
    private let journal: Journal
    private var slots: [Slot] = []
    private var question: Slot?
    /// The connection that has the name; nil: nobody has it, or it is not known yet.
    private(set) var owner: String?
    /// Called when another connection has the name, or none; at first when it is known who has it.
    var ownerChanged: () -> Void = {}

    init(bus: Bus, journal: Journal) {
        self.bus = bus
        self.journal = journal
    }

    /// Watches the name, and asks who has it.
    func start() throws(BusFailure) {
        slots.append(
            try bus.watchOwner(of: Self.name, failed: complain) { [weak self] _, owner in
                // It is newer than the answer that is under way.
                self?.question = nil
                self?.owned(by: owner)
            })
        let asked = try bus.newCall(
            destination: Bus.driver, path: "/org/freedesktop/DBus", interface: Bus.driver,
            member: "GetNameOwner")
        try asked.append(Self.name)
        question = try bus.callAsync(asked) { [weak self] reply in
            self?.question = nil
            self?.owned(by: reply.isError ? nil : try? reply.readString())
        }
    }

    private func owned(by connection: String?) {
        owner = connection
        ownerChanged()
    }

    /// Calls `handler` for logind's own signals of this kind.
    ///
    /// - Parameter rule: the rest of the match rule, after type and sender.
    func onSignal(_ rule: String, _ handler: @escaping (borrowing Message) -> Void) throws(BusFailure) {
        slots.append(
            try bus.match("type='signal',sender='\(Self.name)',\(rule)", failed: complain) {
                [weak self] message in
                // The rule decides what the bus sends on; anybody may address a signal to us directly.
                guard let self, let owner, message.sender == owner else { return }
                handler(message)
            })
    }

    /// A rule that the bus refuses would close the connection where nobody takes the error.
    private func complain(_ error: MethodError) {
        journal.log(.error, "the bus does not tell of \(Self.name): \(error)")
    }

    /// Calls a method and goes on. Does not have the bus start logind: that would call off whoever stops it.
    ///
    /// - Parameters:
    ///   - argument: the only one, of type `s`.
    ///   - handler: gets the reply, or an error after at most 25 s.
    func call(
        _ path: String, _ interface: String, _ member: String, _ argument: String,
        handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try bus.newCall(
            destination: Self.name, path: path, interface: interface, member: member)
        try message.forbidStart()
        try message.append(argument)
        return try bus.callAsync(message, handler: handler)
    }
}

/// A service on the bus: the one place that knows who has its name, so that nobody else's signals are taken for its
/// own.
///
/// Nothing waits for it: it may be away, come back, or never answer.
public final class BusPeer {
    /// Its well-known name.
    public let name: String
    private let bus: Bus
    private let failed: (MethodError) -> Void
    private var slots: [Slot] = []
    private var question: Slot?
    private var ownerHandlers: [() -> Void] = []
    /// The connection that has the name; nil: nobody has it, or it is not known yet.
    public private(set) var owner: String?

    /// - Parameter failed: called when the bus does not tell of it.
    public init(_ name: String, bus: Bus, failed: @escaping (MethodError) -> Void) {
        self.name = name
        self.bus = bus
        self.failed = failed
    }

    /// Watches the name, and asks who has it.
    public func start() throws(BusFailure) {
        slots.append(
            // A rule that the bus refuses would close the connection where nobody takes the error.
            try bus.watchOwner(of: name, failed: failed) { [weak self] _, owner in
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
        for handler in ownerHandlers { handler() }
    }

    /// Calls `handler`, after those that were given before, when another connection has the name, or none; at first when it
    /// is known who has it.
    public func onOwnerChange(_ handler: @escaping () -> Void) { ownerHandlers.append(handler) }

    /// Calls `handler` for its own signals of this kind.
    ///
    /// - Parameter rule: the rest of the match rule, after type and sender.
    public func onSignal(
        _ rule: String, _ handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) {
        slots.append(
            try bus.match("type='signal',sender='\(name)',\(rule)", failed: failed) { [weak self] message in
                // The rule decides what the bus sends on; anybody may address a signal to us directly.
                guard let self, let owner, message.sender == owner else { return }
                handler(message)
            })
    }

    /// Calls a method and goes on. Does not have the bus start the service: that would call off whoever stops it.
    ///
    /// - Parameters:
    ///   - argument: the only one, of type `s`; nil: there is none.
    ///   - timeout: in microseconds; 0 for libsystemd's default of 25 s.
    ///   - handler: gets the reply, or an error after that time.
    public func call(
        _ path: String, _ interface: String, _ member: String, _ argument: String? = nil, timeout: UInt64 = 0,
        handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try bus.newCall(destination: name, path: path, interface: interface, member: member)
        try message.forbidStart()
        if let argument { try message.append(argument) }
        return try bus.callAsync(message, timeout: timeout, handler: handler)
    }
}

/// A service on the bus. This is the only place that knows the owner of its name, so that no other
/// connection's signals are mistaken for its own.
///
/// Nothing waits for the service: it may be away, come back, or never answer.
public final class BusPeer {
    /// Its well-known name.
    public let name: String
    private let bus: Bus
    private let failed: (MethodError) -> Void
    private var slots: [Slot] = []
    private var question: Slot?
    private var ownerHandlers: [() -> Void] = []
    /// The connection that owns the name; nil: no connection owns it, or the owner is not known yet.
    public private(set) var owner: String?

    /// - Parameter failed: called when the bus does not report the owner or the signals.
    public init(_ name: String, bus: Bus, failed: @escaping (MethodError) -> Void) {
        self.name = name
        self.bus = bus
        self.failed = failed
    }

    /// Watches the name, and queries its owner.
    public func start() throws(BusFailure) {
        slots.append(
            // If the bus refuses a rule and nothing takes the error, the connection is closed.
            try bus.watchOwner(of: name, failed: failed) { [weak self] _, owner in
                // This is newer than the answer that is on its way.
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

    /// Calls `handler`, after the handlers that were added before it, when another connection owns the name or none
    /// does, and for the first time when the owner is known.
    public func onOwnerChange(_ handler: @escaping () -> Void) { ownerHandlers.append(handler) }

    /// Calls `handler` for the service's own signals of this kind.
    ///
    /// - Parameter rule: the rest of the match rule, after type and sender.
    public func onSignal(
        _ rule: String, _ handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) {
        slots.append(
            try bus.match("type='signal',sender='\(name)',\(rule)", failed: failed) { [weak self] message in
                // The rule decides what the bus forwards, but any connection can address a signal to us directly.
                guard let self, let owner, message.sender == owner else { return }
                handler(message)
            })
    }

    /// Calls a method without waiting. Does not let the bus start the service: that would cancel a stop of it in
    /// progress.
    ///
    /// - Parameters:
    ///   - argument: the only argument, of type `s`; nil: there is none.
    ///   - timeout: in microseconds; 0 for libsystemd's default of 25 s.
    ///   - handler: receives the reply, or an error after that time.
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

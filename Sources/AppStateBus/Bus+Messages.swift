import CSystemd
import Glibc

extension Bus {
    /// Creates a signal to fill in and pass to `send(_:)`.
    ///
    /// - Parameters:
    ///   - path: the object it comes from.
    ///   - interface: its interface.
    ///   - member: its name.
    ///   - destination: the only connection that receives it; `nil` for all that match.
    public func newSignal(
        path: String, interface: String, member: String, to destination: String? = nil
    ) throws(BusFailure) -> Message {
        var made: OpaquePointer?
        try check(sd_bus_message_new_signal(pointer, &made, path, interface, member), "make signal", member)
        let message = try Self.taken(made, "make signal", member)
        if let destination {
            try check(
                sd_bus_message_set_destination(message.pointer, destination), "address \(member)", destination
            )
        }
        return message
    }

    /// Creates a method call to fill in and send with `call(_:timeout:)` or `callAsync(_:timeout:handler:)`.
    ///
    /// - Parameters:
    ///   - destination: the name of the service.
    ///   - path: the object.
    ///   - interface: the interface.
    ///   - member: the method.
    public func newCall(
        destination: String, path: String, interface: String, member: String
    ) throws(BusFailure) -> Message {
        var made: OpaquePointer?
        try check(
            sd_bus_message_new_method_call(pointer, &made, destination, path, interface, member), "make call",
            member)
        return try Self.taken(made, "make call", member)
    }

    /// Queues a message without requesting a reply.
    public func send(_ message: borrowing Message) throws(BusFailure) {
        try check(sd_bus_send(pointer, message.pointer, nil), "send", message.subject)
    }

    /// Calls a method and waits for its reply. Other messages queue up meanwhile.
    ///
    /// - Parameters:
    ///   - message: from `newCall`.
    ///   - timeout: in microseconds; 0 for libsystemd's default of 25 s.
    /// - Throws: a failure that carries name and message if the peer answered with an error.
    public func call(_ message: borrowing Message, timeout: UInt64 = 0) throws(BusFailure) -> Message {
        var reply: OpaquePointer?
        var error = sd_bus_error()
        defer { sd_bus_error_free(&error) }
        let result = sd_bus_call(pointer, message.pointer, timeout, &error, &reply)
        guard result >= 0 else {
            throw BusFailure(operation: "call", subject: message.subject, result: result, error: error)
        }
        return try Self.taken(reply, "call", message.subject)
    }

    /// Calls a method without waiting for its reply.
    ///
    /// - Parameters:
    ///   - message: from `newCall`.
    ///   - timeout: in microseconds; 0 for libsystemd's default of 25 s.
    ///   - handler: receives the reply, or an error: the peer's, or libsystemd's if the call times out, the peer leaves
    ///     or the connection is lost. Called once.
    /// - Returns: the pending call. If it is released or cancelled, the reply is not delivered.
    public func callAsync(
        _ message: borrowing Message, timeout: UInt64 = 0, handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) -> Slot {
        let context = ReplyContext(handler)
        return try Slot.make(owning: context, "call", message.subject) { slot, userdata in
            sd_bus_call_async(pointer, &slot, message.pointer, handleReply, userdata, timeout)
        }
    }

    /// Calls `handler` for each message that matches a rule.
    ///
    /// The match rule is added asynchronously. Messages that the bus routes before the rule is in force are
    /// missed.
    ///
    /// - Parameters:
    ///   - rule: a match rule, as in the D-Bus specification.
    ///   - failed: called when the bus refuses the rule; no message is delivered then.
    ///   - handler: receives the message, ready to be read from its first argument.
    /// - Returns: the match; it is in force for as long as it is kept.
    public func match(
        _ rule: String, failed: @escaping (MethodError) -> Void,
        handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) -> Slot {
        let context = MatchContext((handler, failed))
        return try Slot.make(owning: context, "match", rule) { slot, userdata in
            sd_bus_add_match_async(pointer, &slot, rule, handleMatch, handleInstall, userdata)
        }
    }

    /// Calls `handler` for each message before anything else sees it.
    ///
    /// - Parameter handler: receives the message, ready to be read from its first argument; returns whether it has
    ///   handled the message, so that nothing else sees it.
    /// - Returns: the filter; it is in force for as long as it is kept.
    public func addFilter(_ handler: @escaping (borrowing Message) -> Bool) throws(BusFailure) -> Slot {
        try Slot.make(owning: FilterContext((handler, isMonitor)), "add", "a filter") { slot, userdata in
            sd_bus_add_filter(pointer, &slot, handleFilter, userdata)
        }
    }

    /// Keeps a call that is not passed to a handler, to answer it once, later.
    public func deferred(_ call: borrowing Message) -> PendingCall { PendingCall(call.retained(), complain) }

    /// Answers a call that is not passed to a handler with an error.
    public func refuse(_ call: borrowing Message, _ error: MethodError) { Answer.fail(call, error, complain) }

    static func taken(
        _ pointer: OpaquePointer?, _ operation: String, _ subject: String
    ) throws(BusFailure) -> Message {
        guard let pointer else { throw BusFailure(operation: operation, subject: subject, errno: ENOMEM) }
        return Message(owning: pointer)
    }
}

/// Cleared after the call, so that the objects that the handler captured do not live until the slot is
/// released.
private typealias ReplyContext = Context<((borrowing Message) -> Void)?>
private typealias MatchContext = Context<
    (handler: (borrowing Message) -> Void, failed: (MethodError) -> Void)
>
private typealias FilterContext = Context<(handler: (borrowing Message) -> Bool, isMonitor: Bool)>

private func handleReply(
    _ message: OpaquePointer?, _ userdata: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let message, let userdata else { return -EINVAL }
    let context = ReplyContext.at(userdata)
    let handler = context.value
    context.value = nil
    handler?(Message(retaining: message))
    return 1
}

private func handleMatch(
    _ message: OpaquePointer?, _ userdata: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let message, let userdata else { return -EINVAL }
    MatchContext.at(userdata).value.handler(Message(retaining: message))
    return 0
}

private func handleInstall(
    _ message: OpaquePointer?, _ userdata: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let message, let userdata else { return -EINVAL }
    if let refusal = Message(retaining: message).error {
        MatchContext.at(userdata).value.failed(refusal)
    }
    return 1
}

private func handleFilter(
    _ message: OpaquePointer?, _ userdata: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let message, let userdata else { return -EINVAL }
    let (handler, isMonitor) = FilterContext.at(userdata).value
    if handler(Message(retaining: message)) { return 1 }
    // sd_bus_set_monitor(3) does not keep sd-bus from answering a call that no handler has handled.
    return isMonitor && sd_bus_message_is_method_call(message, nil, nil) > 0 ? 1 : 0
}

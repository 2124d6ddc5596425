import Glibc

extension Bus {
    /// The bus itself: the destination of calls to it, and the sender of its signals.
    public static let driver = "org.freedesktop.DBus"

    /// Creates a call to the bus itself.
    public func newDriverCall(_ member: String) throws(BusFailure) -> Message {
        try newCall(
            destination: Self.driver, path: "/org/freedesktop/DBus", interface: Self.driver, member: member)
    }

    /// Creates a call that reads a property. Its reply has one value, a variant.
    public func newPropertyCall(
        _ property: String, of interface: String, destination: String, path: String
    ) throws(BusFailure) -> Message {
        let message = try newCall(
            destination: destination, path: path, interface: "org.freedesktop.DBus.Properties", member: "Get")
        try message.append(interface)
        try message.append(property)
        return message
    }

    /// Creates the call after which a bus that was opened with `isMonitor` receives the messages of others.
    ///
    /// - Parameter rules: match rules for the messages to receive; none: all messages.
    public func newMonitorCall(_ rules: [String]) throws(BusFailure) -> Message {
        let message = try newCall(
            destination: Self.driver, path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus.Monitoring", member: "BecomeMonitor")
        try message.append(strings: rules)
        try message.append(UInt32(0))
        return message
    }

    /// Requests a well-known name without waiting; otherwise like `requestName(_:)`.
    ///
    /// - Parameters:
    ///   - name: the well-known name.
    ///   - answered: receives nil once the name is ours, or why it is not.
    /// - Returns: the pending request; if it is released, there is no answer.
    public func askName(
        _ name: String, answered: @escaping (BusFailure?) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try newDriverCall("RequestName")
        try message.append(name)
        // DBUS_NAME_FLAG_DO_NOT_QUEUE of the D-Bus specification.
        try message.append(UInt32(4))
        return try callAsync(message) { reply in
            if let error = reply.error {
                return answered(BusFailure(error, from: "request the name", to: name))
            }
            // DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER, and ALREADY_OWNER.
            let isOurs = (try? reply.readUInt32()).map { [1, 4].contains($0) } ?? false
            answered(isOurs ? nil : BusFailure(operation: "request the name", subject: name, errno: EEXIST))
        }
    }

    /// Releases a well-known name, and does not wait for that.
    public func dropName(_ name: String) throws(BusFailure) {
        let message = try newDriverCall("ReleaseName")
        try message.append(name)
        try send(message)
    }

    /// The connection that owns a name; nil: no connection owns it. A round trip to the bus.
    public func owner(of name: String) throws(BusFailure) -> String? {
        let message = try newDriverCall("GetNameOwner")
        try message.append(name)
        do throws(BusFailure) {
            return try call(message).readString()
        } catch {
            guard error.isNobody else { throw error }
            return nil
        }
    }

    /// Calls `handler` when a name gets, changes or loses its owner.
    ///
    /// Only messages from the bus itself count. A match rule does not exclude messages that another connection sends
    /// directly to us under the bus's interface: sd_bus_add_match(3) cannot compare a sender's well-known name with a
    /// unique one.
    ///
    /// - Parameters:
    ///   - name: unique or well-known; nil: every name.
    ///   - space: only names that begin with this word and a dot.
    ///   - onlyLost: only when no connection owns the name any longer.
    ///   - failed: called when the bus refuses the watch; nothing is reported then.
    ///   - handler: receives the name and the unique name of its present owner; nil: no connection owns it.
    /// - Returns: the watch; it is in force for as long as it is kept.
    public func watchOwner(
        of name: String? = nil, within space: String? = nil, onlyLost: Bool = false,
        failed: @escaping (MethodError) -> Void,
        handler: @escaping (_ name: String, _ owner: String?) -> Void
    ) throws(BusFailure) -> Slot {
        var rule =
            "type='signal',sender='\(Self.driver)',path='/org/freedesktop/DBus',"
            + "interface='\(Self.driver)',member='NameOwnerChanged'"
        if let name { rule += ",arg0='\(name)'" }
        if let space { rule += ",arg0namespace='\(space)'" }
        if onlyLost { rule += ",arg2=''" }
        return try match(rule, failed: failed) { message in
            guard message.sender == Self.driver,
                let change = try? (message.readString(), message.readString(), message.readString())
            else { return }
            handler(change.0, change.2.isEmpty ? nil : change.2)
        }
    }
}

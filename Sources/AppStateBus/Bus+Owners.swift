import Glibc

extension Bus {
    /// The bus itself: where it is called, and who sends what it says.
    public static let driver = "org.freedesktop.DBus"

    /// Makes a call of the bus itself.
    public func newDriverCall(_ member: String) throws(BusFailure) -> Message {
        try newCall(
            destination: Self.driver, path: "/org/freedesktop/DBus", interface: Self.driver, member: member)
    }

    /// Makes the call after which a bus that was opened with `isMonitor` is shown others' messages.
    ///
    /// - Parameter rules: match rules for what is shown; none: everything.
    public func newMonitorCall(_ rules: [String]) throws(BusFailure) -> Message {
        let message = try newCall(
            destination: Self.driver, path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus.Monitoring", member: "BecomeMonitor")
        try message.append(strings: rules)
        try message.append(UInt32(0))
        return message
    }

    /// Asks for a well-known name, and goes on: as `requestName(_:)`.
    ///
    /// - Parameters:
    ///   - name: well-known.
    ///   - answered: gets nil once the name is ours, or why it is not.
    /// - Returns: the question; without it there is no answer.
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

    /// Gives a well-known name back, and does not wait for it.
    public func dropName(_ name: String) throws(BusFailure) {
        let message = try newDriverCall("ReleaseName")
        try message.append(name)
        try send(message)
    }

    /// The connection that has a name; nil: nobody has. A round trip to the bus.
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

    /// Asks for the process of the connection that has a name.
    ///
    /// - Parameters:
    ///   - name: unique or well-known.
    ///   - answered: gets its pid; nil: nobody has the name, or the bus does not know the process.
    /// - Returns: the question; without it there is no answer.
    public func askProcess(
        of name: String, _ answered: @escaping (_ pid: Int32?) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try newDriverCall("GetConnectionUnixProcessID")
        try message.append(name)
        return try callAsync(message) { reply in
            let pid = (try? reply.readUInt32()).flatMap(Int32.init(exactly:))
            answered(pid == 0 ? nil : pid)
        }
    }

    /// Calls `handler` when a name gets, changes or loses its owner.
    ///
    /// Only the bus's own word is taken. A match rule does not keep out what anybody addresses to us directly under
    /// the bus's interface: sd_bus_add_match(3) compares a sender's well-known name with no unique one.
    ///
    /// - Parameters:
    ///   - name: unique or well-known; nil: every name.
    ///   - onlyLost: only when nobody has it any more.
    ///   - failed: called when the bus refuses to tell: nothing will be heard then.
    ///   - handler: gets the name and the unique name of the connection that has it now; nil: nobody has.
    /// - Returns: the watch; it holds for as long as it is kept.
    public func watchOwner(
        of name: String? = nil, onlyLost: Bool = false, failed: @escaping (MethodError) -> Void,
        handler: @escaping (_ name: String, _ owner: String?) -> Void
    ) throws(BusFailure) -> Slot {
        var rule =
            "type='signal',sender='\(Self.driver)',path='/org/freedesktop/DBus',"
            + "interface='\(Self.driver)',member='NameOwnerChanged'"
        if let name { rule += ",arg0='\(name)'" }
        if onlyLost { rule += ",arg2=''" }
        return try match(rule, failed: failed) { message in
            guard message.sender == Self.driver,
                let change = try? (message.readString(), message.readString(), message.readString())
            else { return }
            handler(change.0, change.2.isEmpty ? nil : change.2)
        }
    }
}

import AppStateBus

/// org.freedesktop.login1 on the system bus.
enum Logind {
    static let name = "org.freedesktop.login1"
    static let path = "/org/freedesktop/login1"
    static let manager = "org.freedesktop.login1.Manager"
    static let session = "org.freedesktop.login1.Session"
    static let sessions = "/org/freedesktop/login1/session"
    /// What logind answers about a session that is no more.
    static let noSuchSession = "org.freedesktop.login1.NoSuchSession"
}

extension BusPeer {
    /// Calls a method and goes on. Does not have the bus start logind: that would call off whoever stops it.
    ///
    /// - Parameters:
    ///   - argument: the only one, of type `s`; nil: there is none.
    ///   - timeout: in microseconds; 0 for 25 s.
    ///   - handler: gets the reply, or an error after that time.
    func call(
        _ path: String, _ interface: String, _ member: String, _ argument: String? = nil, timeout: UInt64 = 0,
        handler: @escaping (borrowing Message) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try bus.newCall(
            destination: name, path: path, interface: interface, member: member)
        try message.forbidStart()
        if let argument { try message.append(argument) }
        return try bus.callAsync(message, timeout: timeout, handler: handler)
    }
}

extension Bus {
    /// Queries the process of the connection that owns a name.
    ///
    /// - Parameters:
    ///   - name: unique or well-known.
    ///   - answered: receives its pid; nil: no connection owns the name, or the bus does not know the process.
    /// - Returns: the pending request; if it is released, there is no answer.
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

    /// Queries the process of the connection that owns a name, and a pidfd of that process.
    ///
    /// - Parameters:
    ///   - name: unique or well-known.
    ///   - answered: receives its pid, and the pidfd if the bus provides one, which the receiver must close; nil: no
    ///     connection owns the name, or the bus does not know the process.
    /// - Returns: the pending request; if it is released, there is no answer.
    public func askHeldProcess(
        of name: String, _ answered: @escaping (_ process: (pid: Int32, descriptor: Int32?)?) -> Void
    ) throws(BusFailure) -> Slot {
        try callAsync(newCredentialsCall(of: name)) { reply in
            guard !reply.isError, var found = try? Credentials(reading: reply, of: name) else {
                return answered(nil)
            }
            answered((found.pid, found.takePidDescriptor()))
        }
    }
}

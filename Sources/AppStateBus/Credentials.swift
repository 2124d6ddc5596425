import Glibc

/// The owner of a connection, as the kernel reported it to the bus when the connection was established.
public struct Credentials: ~Copyable {
    /// The user.
    public let uid: UInt32
    /// The process, by its number in the bus's PID namespace. It may have ended since.
    public let pid: Int32
    /// The label of the Linux security module, if there is one.
    public let securityLabel: String?
    /// A pidfd of the process, if the bus provides one (dbus 1.15.8 and later); closed with the credentials.
    public private(set) var pidDescriptor: Int32?

    deinit {
        if let pidDescriptor {
            Glibc.close(pidDescriptor)
        }
    }

    /// Takes the pidfd. The caller must close it.
    public mutating func takePidDescriptor() -> Int32? {
        defer { pidDescriptor = nil }
        return pidDescriptor
    }
}

extension Bus {
    /// Queries the bus for the owner of a connection: GetConnectionCredentials. A round trip to the bus
    /// driver, which answers at once; nothing is read from /proc.
    ///
    /// - Parameter connection: a unique name, or a well-known one.
    /// - Throws: `org.freedesktop.DBus.Error.NameHasNoOwner` if it has left; ENODATA if the bus does not know the user
    ///   or the process.
    public func credentials(of connection: String) throws(BusFailure) -> Credentials {
        try Credentials(reading: try call(newCredentialsCall(of: connection)), of: connection)
    }

    /// Creates the call whose answer `Credentials(reading:of:)` reads.
    public func newCredentialsCall(of connection: String) throws(BusFailure) -> Message {
        let request = try newDriverCall("GetConnectionCredentials")
        try request.append(connection)
        return request
    }
}

extension Credentials {
    /// Reads the `a{sv}` of GetConnectionCredentials, as the D-Bus specification describes it.
    public init(reading reply: borrowing Message, of connection: String) throws(BusFailure) {
        var user: UInt32?
        var process: UInt32?
        var label: String?
        // Owned from here on, so that a later failure closes the pidfd.
        var descriptor = Credentials(uid: 0, pid: 0, securityLabel: nil, pidDescriptor: nil)
        guard try reply.enter(.array, "{sv}") else { throw reply.mismatch("a{sv}", 0) }
        while try reply.enter(.dictEntry, "sv") {
            let key = try reply.readString()
            let type = try reply.peek()?.contents ?? ""
            guard Self.keys[key] == type, try reply.enter(.variant, type) else {
                try reply.skip("v")
                try reply.exit()
                continue
            }
            switch key {
            case "UnixUserID": user = try reply.readUInt32()
            case "ProcessID": process = try reply.readUInt32()
            case "LinuxSecurityLabel":
                label = String(decoding: try reply.readBytes().prefix { $0 != 0 }, as: UTF8.self)
            default: try descriptor.keep(pidDescriptor: reply.readDescriptor())
            }
            try reply.exit()
            try reply.exit()
        }
        try reply.exit()
        guard let user, let process else {
            throw BusFailure(operation: "get the credentials", subject: "of \(connection)", errno: ENODATA)
        }
        self.init(
            uid: user, pid: Int32(bitPattern: process), securityLabel: label,
            pidDescriptor: descriptor.takePidDescriptor())
    }

    /// The entries that are read, and the types they must have.
    private static let keys = [
        "UnixUserID": "u", "ProcessID": "u", "LinuxSecurityLabel": "ay", "ProcessFD": "h",
    ]

    private mutating func keep(pidDescriptor: Int32) {
        if let known = takePidDescriptor() {
            Glibc.close(known)
        }
        self.pidDescriptor = pidDescriptor
    }
}

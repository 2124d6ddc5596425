import Glibc

/// The process at the other end of a local socket, at the time when it connected or began to listen: unix(7),
/// "SO_PEERCRED".
public struct SocketPeer: Sendable {
    /// Nil: it is in a PID namespace that we cannot see.
    public let pid: Int32?
    public let uid: UInt32

    /// Nil for a socket of another kind, whose other end may be on another machine.
    public init?(of descriptor: Int32) {
        // struct ucred: the process, the user, the group. The kernel reports no user for a socket that is not local.
        var credentials: [Int32] = [0, -1, -1]
        var size = socklen_t(credentials.count * MemoryLayout<Int32>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0,
            credentials[1] != -1
        else { return nil }
        pid = credentials[0] > 0 ? credentials[0] : nil
        uid = UInt32(bitPattern: credentials[1])
    }
}

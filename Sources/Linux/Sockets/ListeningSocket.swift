import Glibc

/// A copy of a descriptor of a local socket (unix(7)) on which another process listens: readable as long as a connection
/// waits to be accepted. While it is open the socket is, whatever becomes of that process.
///
/// To close it takes as long as it takes to close what is in its queue, and any user can put something there that takes
/// an hour: a TCP socket that lingers, a file of a FUSE server that does not answer. So nothing is closed by the way, only
/// by `close`.
public struct ListeningSocket: Sendable {
    /// To be polled, until `close`.
    public let descriptor: Int32

    /// Tells it from others for as long as it is open.
    public let inode: UInt32

    /// Whether a connection waits.
    public var isReadable: Bool {
        var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&look, 1, 0) > 0
    }

    /// To be called once. May block without end.
    public func close() { Glibc.close(descriptor) }

    /// Those of some processes, each once, as of one moment in parts only. Processes that are gone, in another network
    /// namespace, or out of our reach (ptrace(2), "Ptrace access mode checking") have none. May block without end.
    ///
    /// - Parameter limit: the most of them.
    public static func of(
        _ processes: some Sequence<Int32>, atMost limit: Int, proc: Proc = Proc()
    ) throws(KernelFailure) -> [ListeningSocket] {
        let handed = HandedOver()
        // A process's own first: of others', any user can make more than are looked at.
        let holders = proc.sockets(of: processes, handed, rest: {})
        if holders.isEmpty { return [] }
        var listening: [UInt32] = []
        var seen = 0
        try SocketDiagnosis(handed).ask(.unread) { report in
            seen += 1
            if report.isListening, report.isConnectionOriented, holders[report.inode] != nil {
                listening.append(report.inode)
            }
            return seen < SocketDiagnosis.mostOfMachine
        }
        var found: [ListeningSocket] = []
        for inode in listening where found.count < limit {
            // What the number stands for by now is told by the copy.
            guard let (pid, number) = holders[inode], let process = try? PidFD(pid: pid),
                let copy = try? process.copy(of: number), Self.inode(of: copy.rawValue) == inode
            else { continue }
            found.append(ListeningSocket(descriptor: copy.release(), inode: inode))
        }
        return found
    }

    private static func inode(of descriptor: Int32) -> UInt32? {
        var information = stat()
        return fstat(descriptor, &information) == 0 ? UInt32(truncatingIfNeeded: information.st_ino) : nil
    }
}

import CLinux
import Glibc

/// Whether processes have something to read in their local sockets (unix(7)), according to sock_diag(7). This does not
/// touch the sockets, and works for stopped and frozen processes too.
public enum UnixSockets {
    /// Whether bytes, packets or connections wait for one of these processes in a stream or sequenced-packet socket.
    /// The end of a stream does not count as something to read, nor does what one of these processes has sent: a browser's
    /// processes always write to each other.
    ///
    /// Makes one request for all connected and listening sockets of the network namespace, and compares the answer with
    /// the processes' open files. Only parts of the answer are of the same moment: a socket that is made or closed
    /// meanwhile may hide another (net/unix/diag.c, `unix_diag_dump`, counts places in a list). Check again
    /// later.
    ///
    /// Other users' processes need `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE` (proc_pid_fd(5)).
    ///
    /// - Throws: if it cannot be determined: `ESRCH` if a process is gone or its id is another's; `EXDEV` if nothing
    ///   is found, and one has sockets and is in another network namespace, whose sockets can be seen only from there;
    ///   `EAFNOSUPPORT` without netlink(7); `ENOENT` without `CONFIG_UNIX_DIAG`.
    public static func haveUnread(
        _ processes: [ProcessIdentity], proc: Proc = Proc(), handed: HandedOver = HandedOver()
    ) throws(KernelFailure) -> Bool {
        var open: Set<UInt32> = []
        var elsewhere: ProcessIdentity?
        for process in processes {
            let numbers = try proc.sockets(of: process.pid)
            // Checked afterwards: a process that has this start time now has had the id all the time.
            guard try proc.identity(of: process.pid) == process else { throw failure(ESRCH, process) }
            if numbers.isEmpty { continue }
            // What it has from before it entered its namespace can be seen.
            open.formUnion(numbers.keys)
            if try !proc.sharesNetwork(with: process.pid, handed) { elsewhere = process }
        }
        if open.isEmpty { return false }
        var isFound = false
        try SocketDiagnosis(handed).ask(.unread) { report in
            isFound =
                report.waiting > 0 && report.isConnectionOriented && open.contains(report.inode)
                && !(report.peer.map(open.contains) ?? false)
            return !isFound
        }
        if !isFound, let elsewhere { throw failure(EXDEV, elsewhere) }
        return isFound
    }

    private static func failure(_ number: Int32, _ process: ProcessIdentity) -> KernelFailure {
        KernelFailure(operation: "read", subject: "sockets of process \(process)", errno: number)
    }
}

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

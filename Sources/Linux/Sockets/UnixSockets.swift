import CLinux
import Glibc

/// Whether processes have something to read in their local sockets (unix(7)), according to sock_diag(7). This does not
/// touch the sockets, and works for stopped and frozen processes too.
public enum UnixSockets {
    /// Whether bytes, packets or connections wait for one of these processes in a stream or sequenced-packet socket.
    /// The end of a stream does not count as something to read.
    ///
    /// Makes one request for all connected and listening sockets of the network namespace, and compares the answer with
    /// the processes' open files. Only parts of the answer are of the same moment: a socket that is made or closed
    /// meanwhile may hide another (net/unix/diag.c, `unix_diag_dump`, counts places in a list). Check again
    /// later.
    ///
    /// Other users' processes need `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE` (proc_pid_fd(5)).
    ///
    /// - Throws: if it cannot be determined: `ESRCH` if a process is gone or its id is another's; `EXDEV` if it has
    ///   sockets and is in another network namespace, whose sockets can be seen only from there; `EAFNOSUPPORT` without
    ///   netlink(7); `ENOENT` without `CONFIG_UNIX_DIAG`.
    public static func haveUnread(
        _ processes: [ProcessIdentity], proc: Proc = Proc(), handed: HandedOver = HandedOver()
    ) throws(KernelFailure) -> Bool {
        var open: Set<UInt32> = []
        for process in processes { open.formUnion(try sockets(of: process, proc, handed)) }
        if open.isEmpty { return false }
        var isFound = false
        try SocketDiagnosis(handed).ask(.unread) { report in
            isFound = report.waiting > 0 && report.isConnectionOriented && open.contains(report.inode)
            return !isFound
        }
        return isFound
    }

    private static func sockets(
        of process: ProcessIdentity, _ proc: Proc, _ handed: HandedOver
    ) throws(KernelFailure) -> Set<UInt32> {
        let numbers = try proc.sockets(of: process.pid).numbers
        func failure(_ number: Int32) -> KernelFailure {
            KernelFailure(operation: "look at", subject: "sockets of process \(process)", errno: number)
        }
        // Checked afterwards: a process that has this start time now has had the id all the time.
        guard try proc.identity(of: process.pid) == process else { throw failure(ESRCH) }
        if numbers.isEmpty { return [] }
        guard try proc.sharesNetwork(with: process.pid, handed) else { throw failure(EXDEV) }
        return Set(numbers.keys)
    }
}

extension Proc {
    /// The sockets among the process's open files: their inode numbers, and a descriptor of each; and the descriptors of
    /// `/dev/fuse`.
    public func sockets(of pid: Int32) throws(KernelFailure) -> (numbers: [UInt32: Int32], fuse: [Int32]) {
        let numbers: [Int32]
        do throws(KernelFailure) {
            numbers = try Files.numbers(in: path(pid, "fd"))
        } catch {
            throw failure(error.operation, pid, "fd", error.errno)
        }
        var found: [UInt32: Int32] = [:]
        var fuse: [Int32] = []
        for number in numbers {
            let name = "fd/\(number)"
            switch Self.file(path(pid, name)) {
            case .success(.socket(let inode)): found[inode] = number
            case .success(.fuse): fuse.append(number)
            case .success(.other): break
            // Closed meanwhile. If the process is gone, it has no identity either.
            case .failure(let number) where number.value == ENOENT: continue
            case .failure(let number): throw failure("readlink", pid, name, number.value)
            }
        }
        return (found, fuse)
    }

    /// The sockets of processes: a process that has each socket, and its descriptor there; and their descriptors of
    /// `/dev/fuse`. Processes that are gone, in another network namespace, or out of our reach count as having none.
    public func sockets(
        of processes: some Sequence<Int32>, _ handed: HandedOver = HandedOver()
    ) -> (holders: [UInt32: (pid: Int32, number: Int32)], fuse: [(pid: Int32, number: Int32)]) {
        var holders: [UInt32: (pid: Int32, number: Int32)] = [:]
        var fuse: [(pid: Int32, number: Int32)] = []
        for pid in processes {
            guard (try? sharesNetwork(with: pid, handed)) == true,
                let found = try? sockets(of: pid)
            else { continue }
            for (inode, number) in found.numbers where holders[inode] == nil {
                holders[inode] = (pid, number)
            }
            fuse += found.fuse.map { (pid, $0) }
        }
        return (holders, fuse)
    }

    public enum OpenFile: Equatable {
        /// By its inode.
        case socket(UInt32)
        /// The end of a FUSE server (fuse(4)), whether it has mounted something or not.
        case fuse
        case other
    }

    /// What one of our own descriptors refers to; nil: it is not open.
    public static func openFile(_ number: Int32) -> OpenFile? { try? file("/proc/self/fd/\(number)").get() }

    /// What the link of a descriptor leads to.
    static func file(_ path: String) -> Result<OpenFile, ErrorNumber> {
        // `socket:[4294967295]` has 19 bytes; a link longer than the buffer is something else.
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 32) { buffer in
            guard let base = buffer.baseAddress else { return .failure(ErrorNumber(value: ENOMEM)) }
            let count = readlink(path, base, buffer.count)
            guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
            let link = UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: buffer[..<count]))
            if link.elementsEqual("/dev/fuse".utf8) { return .success(.fuse) }
            var bytes = Bytes(link)
            guard bytes.take("socket:["), let inode = bytes.unsigned32() else { return .success(.other) }
            return .success(.socket(inode))
        }
    }

    fileprivate func sharesNetwork(with pid: Int32, _ handed: HandedOver) throws(KernelFailure) -> Bool {
        var own = Glibc.stat()
        var its = Glibc.stat()
        // The namespace of the socket through which the kernel is queried.
        let isKnown: Bool
        if let namespace = try handed.networkNamespace() {
            isKnown = fstat(namespace.rawValue, &own) == 0
        } else {
            isKnown = fstatat(AT_FDCWD, "\(root)/self/ns/net", &own, 0) == 0
        }
        guard isKnown else {
            throw KernelFailure(operation: "stat", subject: "\(root)/self/ns/net", errno: errno)
        }
        guard fstatat(AT_FDCWD, path(pid, "ns/net"), &its, 0) == 0 else {
            throw failure("stat", pid, "ns/net", errno)
        }
        return own.st_ino == its.st_ino && own.st_dev == its.st_dev
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

import Glibc
import Linux
import Windows

/// A copy of another process's descriptor of a local socket (unix(7)), of a TCP socket that listens, or of `/dev/fuse`
/// (fuse(4)), to be polled. While the copy is open the socket stays open, and the file system of a FUSE server stays mounted,
/// even if that process ends.
///
/// Closing it also closes the descriptors in its queue, and any user can queue one whose close takes an hour:
/// a TCP socket that lingers, or a file of a FUSE server that does not answer. Therefore a copy is never
/// closed implicitly, only by `close`.
struct SocketCopy: Sendable {
    /// To be polled, until `close`.
    let descriptor: Int32

    /// Distinguishes it from others for as long as it is open.
    let id: ID

    enum ID: Hashable, Sendable {
        /// By its inode.
        case socket(UInt32)
        /// All of them have the same inode.
        case fuse(pid: Int32, number: Int32)
    }

    /// Its purpose.
    let role: Role

    enum Role: Equatable, Sendable {
        /// Readable while a connection waits to be accepted.
        case listening
        /// It is connected to a service that sends this. It is readable as long as something of it was not read.
        case connected(to: UnreadEvents)
        /// It was accepted on a socket of the same processes, from another process. It is readable as long as something
        /// that the other has sent was not read.
        case accepted
        /// It is readable as long as the kernel has requests for the FUSE server: a process waits for the file system.
        case fuse
    }

    /// Whether a connection waits, or something to read.
    var isReadable: Bool {
        var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        // `/dev/fuse` without a mount reports an error.
        return poll(&look, 1, 0) > 0 && look.revents & Int16(POLLIN) != 0
    }

    /// How many bytes wait to be read, including those behind a descriptor. Never blocks.
    var waiting: Int {
        var count: Int32 = 0
        return ioctl(descriptor, UInt(FIONREAD), &count) == 0 ? Int(count) : 0
    }

    /// Passes the waiting bytes to `body`, and leaves them in the queue (recv(2), `MSG_PEEK`). The buffer is
    /// empty if there are none. The kernel returns no bytes behind a descriptor in the queue; `isCut` says
    /// that there are more.
    ///
    /// May block indefinitely: a process that reads the same socket into memory that is not available blocks
    /// all others, `MSG_DONTWAIT` or not (net/unix/af_unix.c, `iolock`).
    ///
    /// - Parameter limit: the most bytes that are examined.
    func peek<Result>(
        atMost limit: Int, _ body: (_ bytes: UnsafeRawBufferPointer, _ isCut: Bool) -> Result
    ) -> Result {
        withUnsafeTemporaryAllocation(byteCount: limit, alignment: 8) { buffer in
            var vector = iovec(iov_base: buffer.baseAddress, iov_len: buffer.count)
            return withUnsafeMutablePointer(to: &vector) { vector in
                var header = msghdr()
                header.msg_iov = vector
                header.msg_iovlen = 1
                let flags = Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)
                let count = max(recvmsg(descriptor, &header, flags), 0)
                let isCut = header.msg_flags & Int32(MSG_CTRUNC) != 0 && waiting > count
                return body(UnsafeRawBufferPointer(rebasing: buffer[..<count]), isCut)
            }
        }
    }

    /// Must be called once. May block indefinitely.
    func close() { Glibc.close(descriptor) }

    /// The listening sockets of some processes, the connections that others have made to these, their own connections to
    /// some services, and the ends of their FUSE servers, each once. Only parts of the result are of the same moment.
    /// Processes that are gone, in another network namespace, or out of our reach (ptrace(2), "Ptrace access mode
    /// checking") count as having none. If one runs, a number may refer to another file by then. May block without end.
    ///
    /// - Parameters:
    ///   - limit: the most that are returned. Connections to services other than buses come first, then FUSE servers,
    ///     listening sockets, connections to buses, and accepted connections.
    ///   - events: what the service sends whose socket has this name, as in `sun_path` of unix(7); nil: connections to it
    ///     are not wanted.
    /// - Throws: if this process has no descriptors left, or the kernel cannot list sockets.
    static func of(
        _ processes: some Sequence<Int32>, atMost limit: Int, events: (String) -> UnreadEvents?,
        proc: Proc = Proc()
    ) throws(KernelFailure) -> [SocketCopy] {
        let own = OpenFiles(of: processes, proc: proc)
        var found: [(id: ID, role: Role, pid: Int32, number: Int32)] = own.fuse.map {
            (.fuse(pid: $0.pid, number: $0.number), .fuse, $0.pid, $0.number)
        }
        if !own.sockets.isEmpty {
            for (inode, role) in try Self.roles(among: own.sockets, events).sorted(by: { $0.key < $1.key }) {
                guard let (pid, number) = own.sockets[inode] else { continue }
                found.append((.socket(inode), role, pid, number))
            }
        }
        var copies: [SocketCopy] = []
        for file in found.sorted(by: { $0.role.rank < $1.role.rank }) where copies.count < limit {
            do throws(KernelFailure) {
                let copy = try PidFD(pid: file.pid).copy(of: file.number)
                copies.append(SocketCopy(descriptor: copy.release(), id: file.id, role: file.role))
            } catch  where error.isExhaustion {
                for copy in copies { copy.close() }
                throw error
            } catch {
                continue
            }
        }
        return copies
    }

    private static func roles(
        among holders: [UInt32: (pid: Int32, number: Int32)], _ events: (String) -> UnreadEvents?
    ) throws(KernelFailure) -> [UInt32: Role] {
        var roles: [UInt32: Role] = [:]
        var names: Set<String> = []
        var named: [UInt32: String] = [:]
        let diagnosis = try SocketDiagnosis()
        try diagnosis.ask(.names) { report in
            let isOwn = holders[report.inode] != nil
            if report.isListening {
                if report.isConnectionOriented, isOwn {
                    roles[report.inode] = .listening
                    if let name = report.name { names.insert(name) }
                }
            } else if let end = report.peer, let name = report.name {
                // The service's end has its name. The other end is the client's.
                if holders[end] != nil {
                    if let sent = events(name) { roles[end] = .connected(to: sent) }
                } else if isOwn, report.isConnectionOriented {
                    named[report.inode] = name
                }
            }
            return true
        }
        for (inode, name) in named where names.contains(name) { roles[inode] = .accepted }
        // What arrives in a connection that was accepted waits for the next drain.
        for inode in (try? diagnosis.listeningInodes()) ?? [] where holders[inode] != nil {
            roles[inode] = .listening
        }
        return roles
    }
}

extension SocketCopy.Role {
    /// The lower, the more important.
    fileprivate var rank: Int {
        switch self {
        case .connected(to: .bus): 3
        case .connected: 0
        case .fuse: 1
        case .listening: 2
        case .accepted: 4
        }
    }
}

import CLinux
import Glibc

/// What waits to be read in the local sockets (unix(7)) of processes, as sock_diag(7) tells it: without
/// touching the sockets, and of processes that stand still as well.
public enum UnixSockets {
    /// A connected or listening socket that has something to read.
    public struct Unread: Equatable, Sendable {
        /// `SOCK_STREAM` or `SOCK_SEQPACKET`.
        public enum Kind: Equatable, Sendable {
            /// A stream of bytes: a message bus, a display.
            case stream
            /// A stream of packets.
            case packets
        }

        /// What waits in it.
        public enum Content: Equatable, Sendable {
            /// So many bytes. The end of a stream is none.
            case bytes(UInt32)
            /// It listens, and so many connections wait for accept(2).
            case connections(UInt32)
        }

        /// Its number in the links of `/proc/PID/fd`.
        public let inode: UInt32
        /// What it is.
        public let kind: Kind
        /// What waits.
        public let content: Content
        /// Those that were asked about and have it open, in the order of the question.
        public let owners: [ProcessIdentity]
        /// What the other end is bound to, most often a service's socket: a path, or `@` and an abstract
        /// name, with `@` for each NUL in it. Nil where it has no name, is gone or is not one but many.
        public let peer: String?
    }

    /// Why something may be missing from an answer.
    public enum Gap: Equatable, Sendable {
        /// The process's list of open files could not be read whole, or it is gone or another (`ESRCH`).
        case unreadable(ProcessIdentity, KernelFailure)
        /// The process is in another network namespace than ours and has sockets: those made there are seen
        /// from there alone.
        case otherNetwork(ProcessIdentity)
        /// There are more than `UnixSockets.mostDescriptors`: this process's rest was not looked at.
        case tooManyDescriptors(ProcessIdentity)
        /// The machine has more than `UnixSockets.mostSockets`: the rest was not looked at.
        case tooManySockets
    }

    /// An answer, and what is missing from it.
    public struct Answer: Equatable, Sendable {
        /// The sockets with something to read, by number.
        public let unread: [Unread]
        /// Empty where the answer is whole.
        public let gaps: [Gap]
    }

    /// The most open files, of all processes asked about, that are looked at.
    public static let mostDescriptors = 16_384
    /// The most of the machine's sockets that are looked at.
    public static let mostSockets = 65_536

    /// What these processes have to read now.
    ///
    /// One request for all connected and listening sockets of the network namespace, compared with the
    /// processes' open files. Of one moment in parts only: a socket made or let go meanwhile may hide
    /// another (net/unix/diag.c, `unix_diag_dump`, counts places in a list). Look again later.
    ///
    /// Other users' processes need `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE` (proc_pid_fd(5)). Throws where
    /// the kernel answers nothing at all: `EAFNOSUPPORT` without netlink(7), `ENOENT` without
    /// `CONFIG_UNIX_DIAG`.
    public static func unread(
        of processes: [ProcessIdentity], proc: Proc = Proc()
    ) throws(KernelFailure) -> Answer {
        var open = OpenSockets()
        for process in processes { open.look(at: process, proc: proc) }
        var gaps = open.gaps
        guard !open.owners.isEmpty else { return Answer(unread: [], gaps: gaps) }

        var waiting: [SocketDiagnosis.Report] = []
        var seen = 0
        try SocketDiagnosis().ask(.all) { report in
            seen += 1
            if seen <= mostSockets, report.waiting > 0, open.owners[report.inode] != nil {
                waiting.append(report)
            }
            return seen <= mostSockets
        }
        if seen > mostSockets { gaps.append(.tooManySockets) }

        guard !waiting.isEmpty else { return Answer(unread: [], gaps: gaps) }

        // The first may have been left in the middle of its answer.
        let diagnosis = try SocketDiagnosis()
        var unread: [Unread] = []
        for report in waiting.sorted(by: { $0.inode < $1.inode }) {
            guard let kind = Unread.Kind(report), let owners = open.owners[report.inode] else { continue }
            var peer: String?
            if let other = report.peer { peer = try diagnosis.name(of: other) }
            unread.append(
                Unread(
                    inode: report.inode, kind: kind,
                    content: report.isListening ? .connections(report.waiting) : .bytes(report.waiting),
                    owners: owners, peer: peer))
        }
        return Answer(unread: unread, gaps: gaps)
    }
}

extension UnixSockets.Unread.Kind {
    /// Nil for datagrams.
    fileprivate init?(_ report: SocketDiagnosis.Report) {
        switch UInt32(report.type) {
        case SOCK_STREAM.rawValue: self = .stream
        case SOCK_SEQPACKET.rawValue: self = .packets
        default: return nil
        }
    }
}

/// Which sockets processes have open, of whatever family.
private struct OpenSockets {
    private(set) var owners: [UInt32: [ProcessIdentity]] = [:]
    private(set) var gaps: [UnixSockets.Gap] = []
    private var left = UnixSockets.mostDescriptors

    mutating func look(at process: ProcessIdentity, proc: Proc) {
        do throws(KernelFailure) {
            let (sockets, isWhole) = try proc.sockets(of: process.pid, left: &left)
            // Asked afterwards: who has that start time now had it all the while.
            guard try proc.identity(of: process.pid) == process else {
                throw KernelFailure(operation: "read", subject: "process \(process)", errno: ESRCH)
            }
            for socket in sockets { owners[socket, default: []].append(process) }
            if !isWhole { gaps.append(.tooManyDescriptors(process)) }
            if !sockets.isEmpty, try !proc.sharesNetwork(with: process.pid) {
                gaps.append(.otherNetwork(process))
            }
        } catch {
            gaps.append(.unreadable(process, error))
        }
    }
}

extension Proc {
    /// The inode numbers of the sockets among the process's open files; false where there are more files
    /// than `left`, from which those looked at are taken.
    func sockets(
        of pid: Int32, left: inout Int
    ) throws(KernelFailure) -> (inodes: Set<UInt32>, isWhole: Bool) {
        let numbers: [Int32]
        do throws(KernelFailure) {
            numbers = try Files.numbers(in: path(pid, "fd"), atMost: left + 1)
        } catch {
            throw failure(error.operation, pid, "fd", error.errno)
        }
        var found: Set<UInt32> = []
        for number in numbers.prefix(left) {
            let name = "fd/\(number)"
            switch Self.socket(path(pid, name)) {
            case .success(let inode): if let inode { found.insert(inode) }
            // Closed meanwhile; a process that is gone has no identity either.
            case .failure(let number) where number.value == ENOENT: continue
            case .failure(let number): throw failure("readlink", pid, name, number.value)
            }
        }
        let isWhole = numbers.count <= left
        left -= min(left, numbers.count)
        return (found, isWhole)
    }

    /// The socket that a link leads to; nil where it is something else.
    private static func socket(_ path: String) -> Result<UInt32?, ErrorNumber> {
        // `socket:[4294967295]` has 19 bytes; what is longer than the buffer is something else.
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 32) { buffer in
            guard let base = buffer.baseAddress else { return .failure(ErrorNumber(value: ENOMEM)) }
            let count = readlink(path, base, buffer.count)
            guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
            var bytes = Bytes(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: buffer[..<count])))
            return .success(bytes.take("socket:[") ? bytes.unsigned32() : nil)
        }
    }

    fileprivate func sharesNetwork(with pid: Int32) throws(KernelFailure) -> Bool {
        var own = Glibc.stat()
        var its = Glibc.stat()
        // That of the socket by which the kernel is asked.
        let isKnown: Bool
        if let handed = try HandedOver.networkNamespace() {
            isKnown = fstat(handed.rawValue, &own) == 0
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

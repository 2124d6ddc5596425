import CLinux
import Glibc

/// Queries the kernel about sockets: sock_diag(7).
public struct SocketDiagnosis: ~Copyable {
    /// The query about every local socket of our network namespace that is connected or listening.
    public enum Question {
        /// How many bytes or connections wait in the sockets.
        case unread
        /// The names to which the sockets are bound.
        case names
    }

    /// The kernel's report about one local socket.
    public struct Report: Equatable {
        /// `SOCK_STREAM` and the like.
        let type: UInt8
        /// Whether it listens.
        public let isListening: Bool
        public let inode: UInt32
        /// False for a datagram socket, which holds nothing but datagrams.
        public var isConnectionOriented: Bool {
            [SOCK_STREAM.rawValue, SOCK_SEQPACKET.rawValue].contains(UInt32(type))
        }
        /// Bytes to read; for a listening socket, connections to accept. 0 if this was not requested.
        public var waiting: UInt32 = 0
        /// The inode of the other end; nil if there is none, or no longer any.
        public var peer: UInt32?
        /// The name that it is bound to, as in `sun_path` of unix(7).
        public var name: String?
    }

    /// The kernel's report about one TCP connection.
    struct Connection: Equatable {
        let inode: UInt32
        /// The user who owns the socket.
        let owner: UInt32
        /// Bytes sent and acknowledged, or received, since the connection was made.
        let bytes: UInt64
        /// Milliseconds since it has last sent data.
        let sent: UInt32
        /// Milliseconds since it has last received data.
        let received: UInt32
        /// Bytes to read; for a listening socket, connections to accept.
        let waiting: UInt32
    }

    private let socket: Descriptor
    /// As large as the kernel's largest part of an answer (net/netlink/af_netlink.c, `netlink_recvmsg`).
    private static let bufferSize = 32_768

    /// Uses the socket that was handed over, which must not be in use by another thread, else one of its own.
    public init(_ handed: HandedOver = HandedOver()) throws(KernelFailure) {
        if let its = try handed.socket() {
            socket = its
        } else {
            socket = try Self.openSocket()
        }
    }

    /// Opens a socket for the queries. They refer to the network namespace of the process that opens it.
    static func openSocket() throws(KernelFailure) -> Descriptor {
        let type = Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue)
        let number = Glibc.socket(AF_NETLINK, type, NETLINK_SOCK_DIAG)
        guard number >= 0 else {
            throw KernelFailure(operation: "socket", subject: "NETLINK_SOCK_DIAG", errno: errno)
        }
        return Descriptor(owning: number)
    }

    /// Discards an answer that an earlier user of this socket has not read to its end.
    private func forget() {
        var byte: UInt8 = 0
        while recv(socket.rawValue, &byte, 1, Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC)) > 0 {}
    }

    /// Calls `body` with each socket of the answer until it returns false. Do not send another query after
    /// that, because the rest of the answer is still to come.
    public func ask(_ question: Question, _ body: (Report) -> Bool) throws(KernelFailure) {
        try exchange(question.request, Report.init, body)
    }

    /// The same with each TCP connection, or with each TCP socket that listens.
    ///
    /// - Parameter family: `AF_INET` or `AF_INET6`.
    func askConnections(
        _ family: Int32, listening: Bool = false, _ body: (Connection) -> Bool
    ) throws(KernelFailure) {
        try exchange(Self.connections(family, listening), Connection.init, body)
    }

    /// The inodes of all TCP sockets that listen.
    public func listeningInodes() throws(KernelFailure) -> Set<UInt32> {
        var found: Set<UInt32> = []
        for family in [AF_INET, AF_INET6] {
            try askConnections(family, listening: true) {
                found.insert($0.inode)
                return true
            }
        }
        return found
    }

    private func exchange<Request, Answer>(
        _ request: Request, _ parse: (UnsafeRawBufferPointer) -> Answer?, _ body: (Answer) -> Bool
    ) throws(KernelFailure) {
        forget()
        try send(request)
        var isDone = false
        while !isDone { isDone = try receive(parse, body) }
    }

    private func send<Request>(_ request: Request) throws(KernelFailure) {
        let count = withUnsafeBytes(of: request) {
            Glibc.send(socket.rawValue, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
        guard count >= 0 else { throw Self.failure("send", errno) }
    }

    /// Takes one part of the answer; true after the last part.
    private func receive<Answer>(
        _ parse: (UnsafeRawBufferPointer) -> Answer?, _ body: (Answer) -> Bool
    ) throws(KernelFailure) -> Bool {
        let number = socket.rawValue
        let outcome = withUnsafeTemporaryAllocation(byteCount: Self.bufferSize, alignment: 8) { buffer in
            // The kernel has written each part before the call that asks for it returns, so there is nothing to wait
            // for.
            let flags = Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC)
            let count = recv(number, buffer.baseAddress, buffer.count, flags)
            guard count >= 0 else { return SocketReports.Outcome.failed(errno) }
            guard count <= buffer.count else { return .failed(EMSGSIZE) }
            return SocketReports(part: UnsafeRawBufferPointer(rebasing: buffer[..<count])).each(parse, body)
        }
        switch outcome {
        case .more: return false
        case .done: return true
        case .failed(let number): throw Self.failure("ask", number)
        }
    }

    private static func failure(_ operation: String, _ number: Int32) -> KernelFailure {
        KernelFailure(operation: operation, subject: "NETLINK_SOCK_DIAG", errno: number)
    }
}

extension SocketDiagnosis.Question {
    fileprivate var request: clinux_unix_diag_request {
        var request = clinux_unix_diag_request()
        request.header = SocketDiagnosis.header(of: clinux_unix_diag_request.self)
        request.body.sdiag_family = UInt8(AF_UNIX)
        request.body.udiag_states = 1 << SocketReports.established | 1 << SocketReports.listening
        request.body.udiag_show =
            switch self {
            case .unread: UInt32(UDIAG_SHOW_RQLEN | UDIAG_SHOW_PEER)
            case .names: UInt32(UDIAG_SHOW_PEER | UDIAG_SHOW_NAME)
            }
        return request
    }
}

extension SocketDiagnosis {
    fileprivate static func connections(_ family: Int32, _ listening: Bool) -> clinux_inet_diag_request {
        var request = clinux_inet_diag_request()
        request.header = header(of: clinux_inet_diag_request.self)
        request.body.sdiag_family = UInt8(family)
        request.body.sdiag_protocol = UInt8(IPPROTO_TCP)
        request.body.idiag_states = 1 << (listening ? SocketReports.listening : SocketReports.established)
        // Bit n asks for attribute n + 1.
        request.body.idiag_ext = UInt8(1 << (INET_DIAG_INFO - 1))
        return request
    }

    fileprivate static func header<Request>(of request: Request.Type) -> nlmsghdr {
        var header = nlmsghdr()
        header.nlmsg_len = UInt32(MemoryLayout<Request>.size)
        header.nlmsg_type = UInt16(SOCK_DIAG_BY_FAMILY)
        header.nlmsg_flags = UInt16(NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH)
        return header
    }
}

/// One part of the kernel's answer: netlink(7) messages, each with a structure of the family and attributes.
struct SocketReports {
    let part: UnsafeRawBufferPointer

    /// How a part ends.
    enum Outcome: Equatable {
        /// The answer may continue in another part.
        case more
        /// Nothing follows, or the caller does not want more.
        case done
        /// The kernel refused, or the message is not an answer (`EBADMSG`).
        case failed(Int32)
    }

    /// TCP_ESTABLISHED and TCP_LISTEN, which other sockets use too (include/net/tcp_states.h).
    static let established: UInt8 = 1
    static let listening: UInt8 = 10

    func each<Answer>(_ parse: (UnsafeRawBufferPointer) -> Answer?, _ body: (Answer) -> Bool) -> Outcome {
        var rest = part[...]
        while !rest.isEmpty {
            // struct nlmsghdr: length, type, flags, sequence, port; 16 bytes.
            let bytes = UnsafeRawBufferPointer(rebasing: rest)
            guard bytes.count >= 16 else { return .failed(EBADMSG) }
            let length = Int(bytes.loadUnaligned(as: UInt32.self))
            let type = Int32(bytes.loadUnaligned(fromByteOffset: 4, as: UInt16.self))
            guard length >= 16, length <= bytes.count else { return .failed(EBADMSG) }
            let payload = UnsafeRawBufferPointer(rebasing: bytes[16..<length])
            switch type {
            case NLMSG_DONE: return .done
            case NLMSG_ERROR: return Self.error(payload)
            case SOCK_DIAG_BY_FAMILY:
                guard let report = parse(payload) else { return .failed(EBADMSG) }
                if !body(report) { return .done }
            default: break
            }
            rest = rest.dropFirst(Self.aligned(length))
        }
        return .more
    }

    /// A negated errno comes first; 0 is an acknowledgement.
    private static func error(_ payload: UnsafeRawBufferPointer) -> Outcome {
        guard payload.count >= 4 else { return .failed(EBADMSG) }
        let number = payload.loadUnaligned(as: Int32.self)
        guard number != 0 else { return .done }
        return .failed(number < 0 && number > -4096 ? -number : EBADMSG)
    }

    /// Calls `add` with the type and the value of each attribute after the first `size` bytes of a message. False if
    /// the attributes are cut off.
    static func attributes(
        of message: UnsafeRawBufferPointer, after size: Int,
        _ add: (_ type: Int, _ value: UnsafeRawBufferPointer) -> Void
    ) -> Bool {
        var rest = message[size...]
        while !rest.isEmpty {
            // struct nlattr: length with these four bytes, type.
            let bytes = UnsafeRawBufferPointer(rebasing: rest)
            guard bytes.count >= 4 else { return false }
            let length = Int(bytes.loadUnaligned(as: UInt16.self))
            let type = Int(bytes.loadUnaligned(fromByteOffset: 2, as: UInt16.self))
            guard length >= 4, length <= bytes.count else { return false }
            add(type, UnsafeRawBufferPointer(rebasing: bytes[4..<length]))
            rest = rest.dropFirst(aligned(length))
        }
        return true
    }

    /// NLMSG_ALIGN and NLA_ALIGN.
    static func aligned(_ length: Int) -> Int { (length + 3) & ~3 }
}

extension SocketDiagnosis.Report {
    /// Nil if the message or its attributes are too short.
    init?(_ message: UnsafeRawBufferPointer) {
        guard message.count >= MemoryLayout<unix_diag_msg>.size else { return nil }
        let head = message.loadUnaligned(as: unix_diag_msg.self)
        self.init(
            type: head.udiag_type, isListening: head.udiag_state == SocketReports.listening,
            inode: head.udiag_ino)
        var report = self
        let isWhole = SocketReports.attributes(of: message, after: MemoryLayout<unix_diag_msg>.size) {
            report.add($0, $1)
        }
        guard isWhole else { return nil }
        self = report
    }

    private mutating func add(_ type: Int, _ value: UnsafeRawBufferPointer) {
        switch type {
        case Int(UNIX_DIAG_NAME): name = Self.name(value)
        case Int(UNIX_DIAG_PEER) where value.count >= 4:
            // 0 until the connection is accepted.
            let inode = value.loadUnaligned(as: UInt32.self)
            peer = inode == 0 ? nil : inode
        // struct unix_diag_rqlen: what waits, then the most that may wait.
        case Int(UNIX_DIAG_RQLEN) where value.count >= 4: waiting = value.loadUnaligned(as: UInt32.self)
        default: break
        }
    }

    /// A path ends with its first NUL; an abstract name begins with one, and all its bytes are the name.
    private static func name(_ bytes: UnsafeRawBufferPointer) -> String? {
        guard let first = bytes.first else { return nil }
        if first == 0 { return String(decoding: bytes.map { $0 == 0 ? 0x40 : $0 }, as: UTF8.self) }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
}

extension SocketDiagnosis.Connection {
    /// Nil if the message or its attributes are too short, or if the kernel reports nothing about its traffic.
    init?(_ message: UnsafeRawBufferPointer) {
        guard message.count >= MemoryLayout<inet_diag_msg>.size else { return nil }
        let head = message.loadUnaligned(as: inet_diag_msg.self)
        var traffic: (bytes: UInt64, sent: UInt32, received: UInt32) = (0, .max, .max)
        let isWhole = SocketReports.attributes(of: message, after: MemoryLayout<inet_diag_msg>.size) {
            if $0 == Int(INET_DIAG_INFO) { traffic = Self.traffic($1) ?? traffic }
        }
        guard isWhole else { return nil }
        self.init(
            inode: head.idiag_inode, owner: head.idiag_uid, bytes: traffic.bytes, sent: traffic.sent,
            received: traffic.received, waiting: head.idiag_rqueue)
    }

    /// `struct tcp_info` (include/uapi/linux/tcp.h): `tcpi_last_data_sent` and `tcpi_last_data_recv`, then
    /// `tcpi_bytes_acked` and `tcpi_bytes_received`, which are there since Linux 4.1.
    private static func traffic(
        _ info: UnsafeRawBufferPointer
    ) -> (bytes: UInt64, sent: UInt32, received: UInt32)? {
        guard info.count >= 136 else { return nil }
        let sent = info.loadUnaligned(fromByteOffset: 44, as: UInt32.self)
        let received = info.loadUnaligned(fromByteOffset: 52, as: UInt32.self)
        let bytes = (
            acknowledged: info.loadUnaligned(fromByteOffset: 120, as: UInt64.self),
            received: info.loadUnaligned(fromByteOffset: 128, as: UInt64.self)
        )
        return (bytes.acknowledged &+ bytes.received, sent, received)
    }
}

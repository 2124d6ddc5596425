import CLinux
import Glibc

/// Questions about local sockets to the kernel: sock_diag(7), "UNIX domain sockets".
struct SocketDiagnosis: ~Copyable {
    /// What is asked about every socket of our network namespace that is connected or listens.
    enum Question {
        /// What waits in them.
        case unread
        /// What they are bound to.
        case names
    }

    /// What the kernel says of one socket.
    struct Report: Equatable {
        /// `SOCK_STREAM` and the like.
        let type: UInt8
        /// Whether it listens.
        let isListening: Bool
        let inode: UInt32
        /// One that datagrams are sent to has nothing else.
        var isConnectionOriented: Bool {
            [SOCK_STREAM.rawValue, SOCK_SEQPACKET.rawValue].contains(UInt32(type))
        }
        /// Bytes to read; of one that listens, connections to accept. 0 where it was not asked.
        var waiting: UInt32 = 0
        /// The inode of the other end; nil where there is none, or none any more.
        var peer: UInt32?
        /// What it is bound to, as in `sun_path` of unix(7).
        var name: String?
    }

    private let socket: Descriptor
    /// As large as the kernel's largest part of an answer (net/netlink/af_netlink.c, `netlink_recvmsg`).
    private static let bufferSize = 32_768

    /// Asks by the socket that was handed over, else by one of its own.
    init(_ handed: HandedOver = HandedOver()) throws(KernelFailure) {
        if let its = try handed.socket() {
            socket = its
            forget()
        } else {
            socket = try Self.openSocket()
        }
    }

    /// A socket for the questions, about the network namespace of who opens it.
    static func openSocket() throws(KernelFailure) -> Descriptor {
        let type = Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue)
        let number = Glibc.socket(AF_NETLINK, type, NETLINK_SOCK_DIAG)
        guard number >= 0 else {
            throw KernelFailure(operation: "socket", subject: "NETLINK_SOCK_DIAG", errno: errno)
        }
        return Descriptor(owning: number)
    }

    /// Who asked by this socket before may have left an answer in it.
    private func forget() {
        var byte: UInt8 = 0
        while recv(socket.rawValue, &byte, 1, Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC)) > 0 {}
    }

    /// Calls `body` with each socket of the answer until it returns false. Nothing may be asked after that: the
    /// rest of the answer is still to come.
    func ask(_ question: Question, _ body: (Report) -> Bool) throws(KernelFailure) {
        try send(question)
        var isDone = false
        while !isDone { isDone = try receive(body) }
    }

    private func send(_ question: Question) throws(KernelFailure) {
        var request = question.request
        let count = withUnsafeBytes(of: &request) {
            Glibc.send(socket.rawValue, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
        guard count >= 0 else { throw Self.failure("send", errno) }
    }

    /// Takes one part of the answer; true after the last.
    private func receive(_ body: (Report) -> Bool) throws(KernelFailure) -> Bool {
        let number = socket.rawValue
        let outcome = withUnsafeTemporaryAllocation(byteCount: Self.bufferSize, alignment: 8) { buffer in
            // The kernel has written each part before the call that asks for it returns: nothing to wait for.
            let flags = Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC)
            let count = recv(number, buffer.baseAddress, buffer.count, flags)
            guard count >= 0 else { return SocketReports.Outcome.failed(errno) }
            guard count <= buffer.count else { return .failed(EMSGSIZE) }
            return SocketReports(part: UnsafeRawBufferPointer(rebasing: buffer[..<count])).each(body)
        }
        switch outcome {
        case .more: return false
        case .done: return true
        case .failed(let number): throw Self.failure("ask", number)
        }
    }

    private static func failure(_ operation: String, _ number: Int32) -> KernelFailure {
        KernelFailure(operation: operation, subject: "NETLINK_SOCK_DIAG about local sockets", errno: number)
    }
}

extension SocketDiagnosis.Question {
    fileprivate var request: clinux_unix_diag_request {
        var request = clinux_unix_diag_request()
        request.header.nlmsg_len = UInt32(MemoryLayout<clinux_unix_diag_request>.size)
        request.header.nlmsg_type = UInt16(SOCK_DIAG_BY_FAMILY)
        request.header.nlmsg_flags = UInt16(NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH)
        request.body.sdiag_family = UInt8(AF_UNIX)
        request.body.udiag_states = 1 << SocketReports.established | 1 << SocketReports.listening
        request.body.udiag_show =
            switch self {
            case .unread: UInt32(UDIAG_SHOW_RQLEN)
            case .names: UInt32(UDIAG_SHOW_PEER | UDIAG_SHOW_NAME)
            }
        return request
    }
}

/// One part of the kernel's answer: messages of netlink(7), each with a `struct unix_diag_msg` and attributes.
struct SocketReports {
    let part: UnsafeRawBufferPointer

    /// How a part ends.
    enum Outcome: Equatable {
        /// The answer may go on in another.
        case more
        /// Nothing follows, or nobody wants it.
        case done
        /// The kernel refused, or this is no answer (`EBADMSG`).
        case failed(Int32)
    }

    /// TCP_ESTABLISHED and TCP_LISTEN, which local sockets have too (include/net/tcp_states.h).
    static let established: UInt8 = 1
    static let listening: UInt8 = 10

    func each(_ body: (SocketDiagnosis.Report) -> Bool) -> Outcome {
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
                guard let report = SocketDiagnosis.Report(payload) else { return .failed(EBADMSG) }
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

    /// NLMSG_ALIGN and NLA_ALIGN.
    static func aligned(_ length: Int) -> Int { (length + 3) & ~3 }
}

extension SocketDiagnosis.Report {
    /// Nil where it is too short, or its attributes are.
    init?(_ message: UnsafeRawBufferPointer) {
        guard message.count >= MemoryLayout<unix_diag_msg>.size else { return nil }
        let head = message.loadUnaligned(as: unix_diag_msg.self)
        self.init(
            type: head.udiag_type, isListening: head.udiag_state == SocketReports.listening,
            inode: head.udiag_ino)
        var rest = message[MemoryLayout<unix_diag_msg>.size...]
        while !rest.isEmpty {
            // struct nlattr: length with these four bytes, type.
            let bytes = UnsafeRawBufferPointer(rebasing: rest)
            guard bytes.count >= 4 else { return nil }
            let length = Int(bytes.loadUnaligned(as: UInt16.self))
            let type = Int(bytes.loadUnaligned(fromByteOffset: 2, as: UInt16.self))
            guard length >= 4, length <= bytes.count else { return nil }
            take(type, UnsafeRawBufferPointer(rebasing: bytes[4..<length]))
            rest = rest.dropFirst(SocketReports.aligned(length))
        }
    }

    private mutating func take(_ type: Int, _ value: UnsafeRawBufferPointer) {
        switch type {
        case Int(UNIX_DIAG_NAME): name = Self.name(value)
        case Int(UNIX_DIAG_PEER) where value.count >= 4:
            // 0 until somebody accepts the connection.
            let inode = value.loadUnaligned(as: UInt32.self)
            peer = inode == 0 ? nil : inode
        // struct unix_diag_rqlen: what waits, then what may.
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

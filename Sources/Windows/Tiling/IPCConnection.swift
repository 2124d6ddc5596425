import Glibc
import Linux

/// A connection to the IPC socket of sway or i3: messages of a header and a JSON text (sway-ipc(7), "MESSAGE FORMAT").
/// Nothing blocks, except that `init` waits for the socket to accept.
final class IPCConnection {
    /// The types of messages that are sent, and of their answers.
    enum Kind: UInt32 {
        case runCommand = 0
        case subscribe = 2
        case getTree = 4
    }

    /// A message that has arrived.
    enum Message: Equatable {
        case answer(UInt32, [UInt8])
        /// Something has happened; the number as in sway-ipc(7), "EVENTS", without the highest bit.
        case event(UInt32, [UInt8])
    }

    private let socket: Descriptor
    private var unread: [UInt8] = []
    /// The other end has closed it, or takes no more messages.
    private(set) var isBroken = false

    private static let magic = Array("i3-ipc".utf8)
    private static let headerSize = 14
    /// A window takes one or two kilobytes in the tree.
    static let greatestMessage = 16 << 20

    /// - Parameter path: as in SWAYSOCK or I3SOCK.
    init(path: String) throws(ObserverFailure) {
        socket = try LocalSocket.connect(to: path)
    }

    var descriptor: Int32 { socket.rawValue }

    /// The process that listens.
    var process: Int32? { SocketPeer(of: descriptor)?.pid }

    /// Sends a message. Messages are small, and few are unanswered at a time, so there is always room for them.
    func send(_ kind: Kind, _ payload: String = "") throws(ObserverFailure) {
        var bytes = Self.magic
        withUnsafeBytes(of: UInt32(payload.utf8.count)) { bytes += $0 }
        withUnsafeBytes(of: kind.rawValue) { bytes += $0 }
        bytes += Array(payload.utf8)
        let count = Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
        guard count == bytes.count else {
            isBroken = true
            throw .ended("it takes no more messages")
        }
    }

    /// Reads everything that has arrived, without waiting.
    func receive() throws(ObserverFailure) -> [Message] {
        if let why = LocalSocket.receive(&unread, from: descriptor) {
            isBroken = true
            throw .ended(why)
        }
        return try takeMessages()
    }

    private func takeMessages() throws(ObserverFailure) -> [Message] {
        var messages: [Message] = []
        var begin = 0
        while unread.count - begin >= Self.headerSize {
            guard unread[begin..<begin + Self.magic.count].elementsEqual(Self.magic) else {
                throw .ended("it does not speak the IPC of sway and i3")
            }
            let length = Int(number(at: begin + 6))
            let type = number(at: begin + 10)
            guard length <= Self.greatestMessage else {
                throw .ended("it sends a message of \(length) bytes")
            }
            let end = begin + Self.headerSize + length
            guard end <= unread.count else { break }
            let payload = Array(unread[begin + Self.headerSize..<end])
            messages.append(type >> 31 == 1 ? .event(type & 0x7FFF_FFFF, payload) : .answer(type, payload))
            begin = end
        }
        unread.removeFirst(begin)
        return messages
    }

    /// In the byte order of the machine.
    private func number(at offset: Int) -> UInt32 {
        unread.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
    }
}

import Glibc
import Linux

/// Sockets of servers on this machine: unix(7).
enum LocalSocket {
    /// How long a server may take to accept, in microseconds. The queue of a server that hangs fills up.
    private static let longestWait: UInt64 = 5_000_000

    /// A connection to the socket at `path`.
    ///
    /// - Parameter patience: how long it may take, in microseconds, if that is less than `longestWait`.
    static func connect(
        to path: String, patience: UInt64 = .max
    ) throws(ObserverFailure) -> Descriptor {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let room = MemoryLayout.size(ofValue: address.sun_path) - 1
        guard path.utf8.count <= room else { throw .unreachable("the path \(path) is too long for a socket") }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw .unreachable("socket: \(String(cString: strerror(errno)))") }
        let connection = Descriptor(owning: number)
        // It applies to connect(2) too: socket(7), "SO_SNDTIMEO".
        let wait = min(patience, longestWait)
        var time = timeval(tv_sec: Int(wait / 1_000_000), tv_usec: Int(wait % 1_000_000))
        setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(number, $0, size) }
        }
        guard result == 0 else {
            throw .unreachable("nothing listens at \(path): \(String(cString: strerror(errno)))")
        }
        return connection
    }

    /// Sends a request of a few hundred bytes, for which the socket has room. False: the server does not take it.
    static func send(_ packet: [UInt8], over descriptor: Int32) -> Bool {
        Glibc.send(descriptor, packet, packet.count, Int32(MSG_NOSIGNAL)) == packet.count
    }

    /// Adds what has arrived, without waiting. Returns why there can be no more; nil: there can.
    ///
    /// - Parameter limit: how many bytes may be unread.
    static func receive(
        _ unread: inout [UInt8], atMost limit: Int = .max, from descriptor: Int32
    ) -> String? {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 {
                unread += buffer.prefix(count)
                guard unread.count <= limit else { return "its message is too long" }
                // The rest makes the descriptor readable again.
                if count < buffer.count { return nil }
            } else if count < 0, errno == EINTR {
                continue
            } else if count < 0, errno == EAGAIN {
                return nil
            } else {
                return "it has ended"
            }
        }
    }

    /// The path to which the server has bound its end; nil if it has none.
    static func service(of descriptor: Int32) -> String? {
        var address = sockaddr_un()
        var size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(descriptor, $0, &size) }
        }
        guard result == 0 else { return nil }
        let path = withUnsafeBytes(of: address.sun_path) { Array($0.prefix { $0 != 0 }) }
        return path.isEmpty ? nil : String(decoding: path, as: UTF8.self)
    }
}

/// A connection to a server that sends lines.
final class LineSocket {
    private let socket: Descriptor
    private var unread: [UInt8] = []

    private static let greatestLine = 16 << 20

    init(path: String) throws(ObserverFailure) { socket = try LocalSocket.connect(to: path) }

    var descriptor: Int32 { socket.rawValue }
    /// The process that listens.
    var process: Int32? { SocketPeer(of: descriptor)?.pid }

    /// The lines that have arrived, without waiting.
    func lines() throws(ObserverFailure) -> [[UInt8]] {
        let end = LocalSocket.receive(&unread, atMost: Self.greatestLine, from: descriptor)
        var lines = unread.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        unread = Array(lines.removeLast())
        if let end, lines.isEmpty { throw .ended(end) }
        return lines.map(Array.init)
    }
}

/// The socket of a Wayland compositor.
public enum DisplaySocket {
    /// The path of a display: as in WAYLAND_DISPLAY, a path, or a name in XDG_RUNTIME_DIR. nil: that is not set.
    static func path(ofDisplay name: String) -> String? {
        name.hasPrefix("/") ? name : Environment["XDG_RUNTIME_DIR"].map { "\($0)/\(name)" }
    }

    /// Whether something accepts connections for a display, named as in WAYLAND_DISPLAY.
    public static func isListening(forDisplay name: String) -> Bool {
        guard let path = path(ofDisplay: name) else { return false }
        return (try? LocalSocket.connect(to: path, patience: 100_000)) != nil
    }
}

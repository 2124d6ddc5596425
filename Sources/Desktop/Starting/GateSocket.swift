import Glibc
import Linux

/// Addresses and calls for the local sockets between a gate and the processes that wait at it: unix(7).
enum GateSocket {
    /// The socket address for a path, or for `@` and a name in the abstract namespace.
    static func address(_ text: String) -> sockaddr_un? {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let room = MemoryLayout.size(ofValue: address.sun_path) - 1
        var bytes = Array(text.utf8)
        guard !bytes.isEmpty, bytes.count <= room else { return nil }
        if bytes[0] == UInt8(ascii: "@") { bytes[0] = 0 }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        return address
    }

    /// Creates a socket, and binds or connects it.
    static func open(
        _ text: String, _ operation: String,
        _ call: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) throws(KernelFailure) -> Descriptor {
        guard var address = address(text) else {
            throw KernelFailure(operation: operation, subject: text, errno: ENAMETOOLONG)
        }
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw KernelFailure(operation: "socket", subject: text, errno: errno) }
        let descriptor = Descriptor(owning: number)
        // Zeros after an abstract name would be part of the name.
        let size = MemoryLayout<sockaddr_un>.size - MemoryLayout.size(ofValue: address.sun_path)
        let length = socklen_t(size + text.utf8.count + (text.utf8.first == UInt8(ascii: "@") ? 0 : 1))
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { call(number, $0, length) }
        }
        guard result == 0 else { throw KernelFailure(operation: operation, subject: text, errno: errno) }
        return descriptor
    }

    /// The byte that lets a process go on. Any other byte, or the end of the connection, means that it may not go on.
    static let proceed = UInt8(ascii: "p")
}

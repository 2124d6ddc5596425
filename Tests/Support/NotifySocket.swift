import Foundation
import Glibc

/// The receiving end of sd_notify(3).
public final class NotifySocket {
    /// What NOTIFY_SOCKET is to say.
    public let path: String
    private let descriptor: Int32

    public init(in directory: String) throws {
        path = directory + "/notify"
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw TestFailure("socket: \(String(cString: strerror(errno)))") }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { buffer in
            buffer.copyBytes(from: path.utf8.prefix(buffer.count - 1))
        }
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw TestFailure("bind \(path): \(String(cString: strerror(errno)))") }
        chmod(path, 0o666)
    }

    deinit { close(descriptor) }

    /// Waits for a message with this line; fails when the sender ends before.
    public func wait(for line: String, from child: Child, timeout: Int32 = 30_000) throws {
        while true {
            var ready = [pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)]
            ready += child.descriptors.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            guard poll(&ready, nfds_t(ready.count), timeout) > 0 else {
                throw TestFailure("no \(line) within \(timeout) ms\n\(child.errors)")
            }
            if ready[0].revents != 0 {
                var buffer = [UInt8](repeating: 0, count: 4_096)
                let count = recv(descriptor, &buffer, buffer.count, 0)
                let text = String(decoding: buffer.prefix(max(count, 0)), as: UTF8.self)
                if text.split(separator: "\n").contains(Substring(line)) { return }
            } else if let ending = child.advance() {
                throw TestFailure("the process ended (\(ending)) before it was ready\n\(child.errors)")
            }
        }
    }
}

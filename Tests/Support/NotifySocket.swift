import Foundation
import Glibc

/// The receiving end of sd_notify(3). It is read all the time, as by the service manager: the sender must not wait
/// for a test.
public final class NotifySocket {
    /// The value for NOTIFY_SOCKET.
    public let path: String
    private let inbox: Inbox

    public init(in directory: String) throws {
        path = directory + "/notify"
        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw TestFailure("socket: \(String(cString: strerror(errno)))") }
        inbox = Inbox(descriptor, try PipeEnds())
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
        let inbox = inbox
        Thread.detachNewThread { inbox.receive() }
    }

    deinit { shutdown(inbox.socket, Int32(SHUT_RDWR)) }

    /// Waits for a message with this line.
    ///
    /// - Parameter timeout: the longest pause between two events, in milliseconds.
    /// - Throws: `TestFailure` after the timeout, or if the child ends before.
    public func wait(for line: String, from child: Child, timeout: Int32 = 300_000) throws {
        while true {
            var ready = [pollfd(fd: inbox.arrivals.read, events: Int16(POLLIN), revents: 0)]
            ready += child.descriptors.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            guard poll(&ready, nfds_t(ready.count), timeout) > 0 else {
                throw TestFailure("no \(line) within \(timeout) ms\n\(child.errors)")
            }
            if ready[0].revents != 0 {
                if inbox.take().split(separator: "\n").contains(Substring(line)) { return }
            } else if let ending = child.advance() {
                throw TestFailure("the process ended (\(ending)) before it was ready\n\(child.errors)")
            }
        }
    }
}

/// The messages that have arrived and that the test has not read yet.
private final class Inbox: @unchecked Sendable {
    let socket: Int32
    /// One byte for each message.
    let arrivals: PipeEnds
    private let lock = NSLock()
    private var messages: [String] = []

    init(_ socket: Int32, _ arrivals: PipeEnds) {
        self.socket = socket
        self.arrivals = arrivals
    }

    deinit {
        close(socket)
    }

    func receive() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while true {
            // Descriptors in the message are not received, so the kernel drops them.
            let count = recv(socket, &buffer, buffer.count, 0)
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return }
            let text = String(decoding: buffer.prefix(count), as: UTF8.self)
            // No test waits for the descriptors that the service manager stores for the next daemon.
            if text.hasPrefix("FDSTORE") { continue }
            lock.withLock { messages.append(text) }
            var mark: UInt8 = 1
            write(arrivals.write, &mark, 1)
        }
    }

    func take() -> String {
        var mark: UInt8 = 0
        read(arrivals.read, &mark, 1)
        return lock.withLock { messages.isEmpty ? "" : messages.removeFirst() }
    }
}

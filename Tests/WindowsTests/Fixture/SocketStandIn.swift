import Foundation
import Glibc
import TestSupport

/// A socket that answers as a compositor does that no distribution's package lets tests run. It closes when it is
/// released.
final class SocketStandIn: @unchecked Sendable {
    private let lock = NSLock()
    private let descriptor: Int32
    private var connections: [Int32] = []
    private var received: [String] = []

    /// - Parameters:
    ///   - closes: each connection is closed after its first answer.
    ///   - answer: answers a request; nil: nothing.
    convenience init(
        path: String, closes: Bool = false, _ answer: @escaping @Sendable (String) -> String?
    ) throws {
        try self.init(
            path: path,
            bytes: { bytes in
                answer(String(decoding: bytes, as: UTF8.self)).map { (Array($0.utf8), closes) }
            })
    }

    /// - Parameter answer: answers bytes, with whether the connection is to be closed then.
    init(path: String, bytes answer: @escaping @Sendable ([UInt8]) -> (bytes: [UInt8], closes: Bool)?) throws
    {
        descriptor = try Listener.listen(at: path)
        let listener = descriptor
        Thread.detachNewThread { [weak self] in
            while case let connection = accept(listener, nil, nil), connection >= 0 {
                guard let self else { return }
                lock.withLock { connections.append(connection) }
                Thread.detachNewThread { [weak self] in
                    var buffer = [UInt8](repeating: 0, count: 65_536)
                    while case let count = recv(connection, &buffer, buffer.count, 0), count > 0 {
                        let request = Array(buffer.prefix(count))
                        self?.note(String(decoding: request, as: UTF8.self))
                        guard let (bytes, closes) = answer(request) else { continue }
                        Self.send(bytes, to: connection)
                        if closes { shutdown(connection, Int32(SHUT_RDWR)) }
                    }
                }
            }
        }
    }

    deinit {
        for connection in connections + [descriptor] {
            shutdown(connection, Int32(SHUT_RDWR))
            close(connection)
        }
    }

    /// All requests so far.
    var requests: [String] { lock.withLock { received } }

    /// Sends to the first client.
    func push(_ text: String) throws { try push(Array(text.utf8)) }

    func push(_ bytes: [UInt8]) throws {
        guard eventually({ lock.withLock { !connections.isEmpty } }) else { throw TestFailure("no client") }
        Self.send(bytes, to: lock.withLock { connections[0] })
    }

    private func note(_ request: String) { lock.withLock { received.append(request) } }

    private static func send(_ bytes: [UInt8], to connection: Int32) {
        _ = Glibc.send(connection, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }
}

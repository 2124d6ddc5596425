import Foundation
import Glibc
import TestSupport

/// A socket that accepts connections. It closes when it is released.
final class Listener {
    let path: String
    private let directory: String
    private let descriptor: Int32

    init() throws {
        directory = try TestDesktop.directory()
        path = directory + "/socket"
        descriptor = try Self.listen(at: path)
    }

    /// A socket that listens at a path. The caller closes it.
    static func listen(at path: String) throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) }
        }
        guard result == 0, Glibc.listen(descriptor, 8) == 0 else {
            throw TestFailure("cannot listen at \(path)")
        }
        return descriptor
    }

    deinit {
        close(descriptor)
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// Sends these bytes to the next client and closes the connection.
    func serve(_ bytes: [UInt8]) {
        let listener = descriptor
        Thread.detachNewThread {
            let connection = accept(listener, nil, nil)
            _ = send(connection, bytes, bytes.count, Int32(MSG_NOSIGNAL))
            close(connection)
        }
    }
}

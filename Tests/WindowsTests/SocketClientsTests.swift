import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Windows

@Suite("SocketClients")
struct SocketClientsTests {
    /// A listening socket at a path or with an abstract name.
    private final class Service {
        let name: String
        let descriptor: Int32
        private(set) var accepted: [Int32] = []
        private let address: sockaddr_un
        private let size: socklen_t

        init(abstract: Bool) throws {
            let path = "\(NSTemporaryDirectory())service-\(getpid())-\(UInt32.random(in: 0 ... .max))"
            name = abstract ? "@" + path : path
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            let bytes = abstract ? [0] + Array(path.utf8) : Array(path.utf8) + [0]
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
            self.address = address
            size = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
            descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            let bound = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) }
            }
            guard bound == 0, listen(descriptor, 8) == 0 else {
                throw TestFailure("cannot listen at \(name)")
            }
        }

        deinit {
            for connection in accepted { close(connection) }
            close(descriptor)
            unlink(name)
        }

        /// A connection of this process, which children inherit; the caller closes it.
        func connection() throws -> Int32 {
            let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            var address = address
            let result = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(client, $0, size) }
            }
            guard result == 0 else { throw TestFailure("no process listens at \(name)") }
            accepted.append(accept(descriptor, nil, nil))
            return client
        }
    }

    @Test("connected clients are found, by a path or an abstract name", arguments: [false, true])
    func connected(_ abstract: Bool) throws {
        let service = try Service(abstract: abstract)
        let other = try Service(abstract: abstract)
        var clients = SocketClients()
        #expect(try clients.connected(to: [service.name]) == [])
        let (first, second) = (try service.connection(), try other.connection())
        defer { close(second) }
        let own = try Proc().identity(of: getpid())
        #expect(try clients.connected(to: [service.name]) == [own])
        #expect(try clients.connected(to: [service.name, other.name]) == [own])

        // A child inherits the connection: the older of both processes counts, then the remaining one.
        let child = try Child("cat", descriptors: [0: first])
        #expect(try clients.connected(to: [service.name]) == [own])
        close(first)
        var anew = SocketClients()
        let identity = try Proc().identity(of: child.pid)
        // A child that another test has just forked may hold a copy of it until it executes its program.
        #expect(try eventually { try anew.connected(to: [service.name]) == [identity] })
        child.kill(SIGKILL)
        try child.waitForExit()
        #expect(try eventually { try anew.connected(to: [service.name]) == [] })
        #expect(try anew.connected(to: ["/nonexistent", ""]) == [])
    }
}

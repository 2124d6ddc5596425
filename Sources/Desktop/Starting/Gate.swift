import AppStateBus
import Glibc
import Linux

/// A gate at which a process that we have started waits until it may run its program.
///
/// The process connects to our socket and reads. It goes on if it gets the permission. Otherwise it ends; it also ends
/// if our process ends for whatever reason.
final class Gate {
    /// The address that is passed to the process: a path, or `@` and a name in the abstract namespace.
    let address: String
    private let listener: Int32
    private var source: Source?
    private let id: String
    private let arrived: (StartedProgram) -> Void
    private let loop: EventLoop

    /// The listen backlog; one process is expected.
    private static let backlog: Int32 = 4

    /// Opens the gate.
    ///
    /// - Parameters:
    ///   - loop: the loop that accepts the processes.
    ///   - directory: a directory that only the user can access, `XDG_RUNTIME_DIR`, in which the socket is made. Nil:
    ///     the socket gets a name in the abstract namespace. That name is visible to programs in a sandbox that shares
    ///     the machine's network.
    ///   - id: the application's id.
    ///   - arrived: gets each process of this user that waits. The caller must check the identity of the process.
    init(
        loop: EventLoop, directory: String?, id: String, arrived: @escaping (StartedProgram) -> Void
    ) throws {
        let name = "appstate-gate-" + String(UInt64.random(in: .min ... .max), radix: 36)
        address = directory.map { "\($0)/\(name)" } ?? "@\(name)"
        self.loop = loop
        self.id = id
        self.arrived = arrived
        let socket = try GateSocket.open(address, "bind the gate", Glibc.bind)
        guard listen(socket.rawValue, Self.backlog) == 0 else {
            throw KernelFailure(operation: "listen", subject: address, errno: errno)
        }
        _ = fcntl(socket.rawValue, F_SETFL, O_NONBLOCK)
        listener = socket.release()
        source = try loop.watch(listener) { [weak self] _ in self?.accept() }
    }

    /// Accepts no more processes. The processes that already wait continue to wait.
    deinit {
        source?.cancel()
        close(listener)
        if address.utf8.first == UInt8(ascii: "/") { unlink(address) }
    }

    private func accept() {
        let number = Glibc.accept(listener, nil, nil)
        guard number >= 0 else { return }
        let connection = Descriptor(owning: number)
        _ = fcntl(number, F_SETFD, FD_CLOEXEC)
        // Processes of other users, and processes that have already ended, are dropped.
        guard let process = try? StartedProgram(connection, id: id, loop: loop) else { return }
        arrived(process)
    }
}

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

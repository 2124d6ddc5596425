public import AppStateBus
import Glibc
import Linux

/// Where a process that we have started waits until it may become the program that it is for.
///
/// The process connects to a socket of ours and reads. It goes on when it is told so, and ends when it is not, also when we
/// end, however that happens.
public final class Gate {
    /// What the process is given to find it: a path, or `@` and a name in the abstract namespace.
    public let address: String
    private let listener: Int32
    private var source: Source?
    private let arrived: (WaitingProcess) -> Void
    private let loop: EventLoop

    /// How many may wait to be accepted: one is awaited.
    private static let backlog: Int32 = 4

    /// Opens it.
    ///
    /// - Parameters:
    ///   - loop: has the processes accepted.
    ///   - directory: of the user alone, where the socket is made: `XDG_RUNTIME_DIR`. Nil: it has a name in the abstract
    ///     namespace, which is no secret to what runs in a sandbox with the network of the machine.
    ///   - arrived: gets each process of this user that waits. Who it is, is for the caller to check.
    public init(
        loop: EventLoop, directory: String?, arrived: @escaping (WaitingProcess) -> Void
    ) throws {
        let name = "appstate-gate-" + String(UInt64.random(in: .min ... .max), radix: 36)
        address = directory.map { "\($0)/\(name)" } ?? "@\(name)"
        self.loop = loop
        self.arrived = arrived
        let socket = try GateSocket.open(address, "bind the gate", Glibc.bind)
        guard listen(socket.rawValue, Self.backlog) == 0 else {
            throw KernelFailure(operation: "listen", subject: address, errno: errno)
        }
        _ = fcntl(socket.rawValue, F_SETFL, O_NONBLOCK)
        listener = socket.release()
        source = try loop.watch(listener) { [weak self] _ in self?.accept() }
    }

    deinit { close() }

    /// Lets nobody in any more. Those that wait go on waiting.
    public func close() {
        guard let source else { return }
        self.source = nil
        source.cancel()
        Glibc.close(listener)
        if address.utf8.first == UInt8(ascii: "/") { unlink(address) }
    }

    private func accept() {
        let number = Glibc.accept(listener, nil, nil)
        guard number >= 0 else { return }
        let connection = Descriptor(owning: number)
        _ = fcntl(number, F_SETFD, FD_CLOEXEC)
        // Others' processes, and those that have ended already, are let go.
        guard let process = try? WaitingProcess(connection, loop: loop) else { return }
        arrived(process)
    }
}

/// A process of this user's that waits at a gate. Let go, it ends.
public final class WaitingProcess {
    /// Its number, the same before and after it goes on.
    public let pid: Int32
    private let process: PidFD
    private let connection: Descriptor
    private let loop: EventLoop
    private var source: Source?
    private var isOpen = true

    init(_ connection: consuming Descriptor, loop: EventLoop) throws(KernelFailure) {
        guard let peer = GateSocket.peer(of: connection.rawValue), peer.uid == geteuid() else {
            throw KernelFailure(operation: "let in", subject: "a process of another user", errno: EPERM)
        }
        process = try PidFD(pid: peer.pid)
        // It still waits, so the number was its own when the process was opened.
        var look = pollfd(fd: connection.rawValue, events: Int16(POLLIN), revents: 0)
        guard poll(&look, 1, 0) == 0 else {
            throw KernelFailure(operation: "let in", subject: "pid \(peer.pid)", errno: ESRCH)
        }
        pid = peer.pid
        self.connection = connection
        self.loop = loop
    }

    deinit { source?.cancel() }

    /// A pidfd of it, ours: readable once it has ended.
    public var descriptor: Int32 { process.rawValue }

    /// Whether it has ended.
    public var hasExited: Bool { process.hasExited }

    /// How it ended, as far as the kernel tells one who is not its parent.
    var exitStatus: ExitStatus { process.exitStatus() }

    /// Lets it go on. Only the first call of this or `cancel` does anything.
    ///
    /// - Parameter done: called when it runs its program, or has ended: with the error number where the program cannot be
    ///   run.
    public func proceed(_ done: @escaping (_ failure: Int32?) -> Void) throws(BusFailure) {
        guard isOpen else { return }
        isOpen = false
        source = try loop.watch(connection.rawValue) { [weak self] _ in
            guard let self else { return }
            var number: Int32 = 0
            let count = read(connection.rawValue, &number, MemoryLayout<Int32>.size)
            source?.cancel()
            source = nil
            done(count == MemoryLayout<Int32>.size ? number : nil)
        }
        var word = GateSocket.proceed
        // Where it has ended, the source tells.
        _ = send(connection.rawValue, &word, 1, Int32(MSG_NOSIGNAL))
    }

    /// Has it end: nothing of its program runs.
    public func cancel() {
        guard isOpen else { return }
        isOpen = false
        shutdown(connection.rawValue, Int32(SHUT_RDWR))
    }
}

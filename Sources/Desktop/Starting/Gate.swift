public import AppStateBus
import Glibc
import Linux

/// A gate at which a process that we have started waits until it may run its program.
///
/// The process connects to our socket and reads. It goes on if it gets the permission. Otherwise it ends; it also ends
/// if our process ends for whatever reason.
public final class Gate {
    /// The address that is passed to the process: a path, or `@` and a name in the abstract namespace.
    public let address: String
    private let listener: Int32
    private var source: Source?
    private let arrived: (WaitingProcess) -> Void
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
    ///   - arrived: gets each process of this user that waits. The caller must check the identity of the process.
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

    /// Accepts no more processes. The processes that already wait continue to wait.
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
        // Processes of other users, and processes that have already ended, are dropped.
        guard let process = try? WaitingProcess(connection, loop: loop) else { return }
        arrived(process)
    }
}

/// A process of this user that waits at a gate. It ends if this object is released.
public final class WaitingProcess {
    /// The PID, which stays the same when the process goes on.
    public let pid: Int32
    private let process: PidFD
    private let connection: Descriptor
    private let loop: EventLoop
    private var source: Source?
    private var timer: Timer?
    private var done: ((_ failure: Int32?) -> Void)?
    private var isOpen = true

    /// How long it is waited for the program to run, in microseconds. execve(2) may wait for a file server, and
    /// somebody may stop the process before that.
    private static let patience: UInt64 = 10_000_000

    init(_ connection: consuming Descriptor, loop: EventLoop) throws(KernelFailure) {
        guard let peer = SocketPeer(of: connection.rawValue), let pid = peer.pid, peer.uid == geteuid() else {
            throw KernelFailure(operation: "let in", subject: "a process of another user", errno: EPERM)
        }
        process = try PidFD(pid: pid)
        // The process still waits, so the PID belonged to it when the pidfd was opened.
        var look = pollfd(fd: connection.rawValue, events: Int16(POLLIN), revents: 0)
        guard poll(&look, 1, 0) == 0 else {
            throw KernelFailure(operation: "let in", subject: "pid \(pid)", errno: ESRCH)
        }
        self.pid = pid
        self.connection = connection
        self.loop = loop
    }

    deinit { source?.cancel() }

    /// A pidfd of the process, owned by this object. It is readable once the process has ended.
    public var descriptor: Int32 { process.rawValue }

    /// Whether the process has ended.
    public var hasExited: Bool { process.hasExited }

    /// How the process ended, as far as the kernel reports this to a process that is not its parent.
    var exitStatus: ExitStatus { process.exitStatus() }

    /// Lets the process go on. Only the first call of this method or `cancel` has an effect.
    ///
    /// - Parameter done: called when the process runs its program or has ended, or when neither has happened within ten
    ///   seconds. It gets the error number if the program cannot be run.
    public func proceed(_ done: @escaping (_ failure: Int32?) -> Void) throws(BusFailure) {
        guard isOpen else { return }
        let timer = try loop.timer { [weak self] in self?.conclude(nil) }
        source = try loop.watch(connection.rawValue) { [weak self] _ in self?.hear() }
        isOpen = false
        timer.arm(at: loop.now + Self.patience)
        (self.timer, self.done) = (timer, done)
        var word = GateSocket.proceed
        // If the process has ended, the event source reports it.
        _ = send(connection.rawValue, &word, 1, Int32(MSG_NOSIGNAL))
    }

    private func hear() {
        var number: Int32 = 0
        let count = read(connection.rawValue, &number, MemoryLayout<Int32>.size)
        conclude(count == MemoryLayout<Int32>.size ? number : nil)
    }

    private func conclude(_ failure: Int32?) {
        let done = done
        source?.cancel()
        (self.source, self.timer, self.done) = (nil, nil, nil)
        done?(failure)
    }

    /// Makes the process end without running its program.
    public func cancel() {
        guard isOpen else { return }
        isOpen = false
        shutdown(connection.rawValue, Int32(SHUT_RDWR))
    }
}

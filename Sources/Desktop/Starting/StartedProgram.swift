public import AppStateBus
import Glibc
public import Linux

/// A process that waits at its gate, runs its program, or has ended. If this object is released while it waits, it
/// ends.
public final class StartedProgram {
    /// The PID, the same at the gate and afterwards.
    public let pid: Int32
    /// The unit of the program. Nil: it is our child.
    public internal(set) var unit: String?
    /// How the process ended. Nil: it has not ended, or the service manager has not reported yet how. If neither the
    /// service manager nor the kernel reports it within ten seconds, it is `unknown`.
    public private(set) var ending: ExitStatus?
    private var handlers: [(ExitStatus) -> Void] = []
    private let id: String
    private let process: PidFD
    private let connection: Descriptor
    private let loop: EventLoop
    private var source: Source?
    private var timer: Timer?
    private var done: ((MethodError?) -> Void)?
    private var isWaiting = true

    /// How long it is waited for the program to run, in microseconds. execve(2) may wait for a file server, and
    /// somebody may stop the process before that.
    private static let patience: UInt64 = 10_000_000

    /// - Parameter connection: that of the process to its gate.
    init(_ connection: consuming Descriptor, id: String, loop: EventLoop) throws(KernelFailure) {
        guard let peer = SocketPeer(of: connection.rawValue), let pid = peer.pid, peer.uid == geteuid() else {
            throw KernelFailure(operation: "let in", subject: "a process of another user", errno: EPERM)
        }
        process = try PidFD(pid: pid)
        // The process still waits, so the PID belonged to it when the pidfd was opened.
        var wait = pollfd(fd: connection.rawValue, events: Int16(POLLIN), revents: 0)
        guard poll(&wait, 1, 0) == 0 else {
            throw KernelFailure(operation: "let in", subject: "pid \(pid)", errno: ESRCH)
        }
        self.pid = pid
        self.connection = connection
        self.id = id
        self.loop = loop
    }

    deinit { source?.cancel() }

    /// A pidfd of the process, owned by this object. It is readable once the process has ended.
    public var descriptor: Int32 { process.rawValue }

    /// Whether the process has ended.
    public var hasExited: Bool { ending != nil || process.hasExited }

    /// Lets the program run. Only the first call of this method or `cancel` has an effect.
    ///
    /// - Parameter done: called when the program runs, or with the failure if it cannot be run. If neither is known
    ///   within ten seconds, the program counts as running.
    public func proceed(_ done: @escaping (MethodError?) -> Void = { _ in }) {
        guard isWaiting else { return }
        do throws(BusFailure) {
            timer = try loop.timer { [weak self] in self?.conclude(nil) }
            source = try loop.watch(connection.rawValue) { [weak self] _ in self?.hear() }
        } catch {
            return done(.failed("\(id) was not started: \(error)"))
        }
        isWaiting = false
        self.done = done
        timer?.arm(at: loop.now + Self.patience)
        var word = GateSocket.proceed
        // If the process has ended, the event source reports it.
        _ = send(connection.rawValue, &word, 1, Int32(MSG_NOSIGNAL))
    }

    private func hear() {
        var number: Int32 = 0
        let count = read(connection.rawValue, &number, MemoryLayout<Int32>.size)
        let isFailure = count == MemoryLayout<Int32>.size
        conclude(isFailure ? .failed("\(id) was not started: \(String(cString: strerror(number)))") : nil)
    }

    private func conclude(_ failure: MethodError?) {
        let done = done
        source?.cancel()
        (self.source, self.timer, self.done) = (nil, nil, nil)
        done?(failure)
    }

    /// Makes the process end at its gate, without running the program.
    public func cancel() {
        guard isWaiting else { return }
        isWaiting = false
        shutdown(connection.rawValue, Int32(SHUT_RDWR))
    }

    /// Calls `handler` once it is known how the process ended, or at once if it is already known.
    public func onEnd(_ handler: @escaping (ExitStatus) -> Void) {
        if let ending { handler(ending) } else { handlers.append(handler) }
    }

    func ended(_ status: ExitStatus) {
        guard ending == nil else { return }
        // Since Linux 6.15 the kernel reports the status to processes that are not the parent.
        let status = status == .unknown ? process.exitStatus() : status
        ending = status
        let handlers = handlers
        self.handlers = []
        for handler in handlers { handler(status) }
    }
}

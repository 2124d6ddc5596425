public import AppStateBus
import Glibc
public import Linux

/// A process that waits at its gate, runs its program, or has ended.
public final class StartedProgram {
    /// The PID, the same at the gate and afterwards.
    public let pid: Int32
    /// The unit that was made for it; nil: none.
    public let unit: String?
    /// How the process ended. Nil: it has not ended, or it is not known yet.
    public private(set) var ending: ExitStatus?
    private var handlers: [(ExitStatus) -> Void] = []
    private let process: PidFD
    /// Its connection to its gate; -1: it has no gate.
    private let gate: Int32
    private var source: Source?
    private var end: Source?
    private let loop: EventLoop

    /// - Parameter gate: its connection, owned by this object from now on.
    init(_ pid: Int32, at gate: Int32, unit: String?, loop: EventLoop) throws(KernelFailure) {
        do throws(KernelFailure) {
            process = try PidFD(pid: pid)
        } catch {
            close(gate)
            throw error
        }
        (self.pid, self.gate, self.unit, self.loop) = (pid, gate, unit, loop)
    }

    /// A process that runs already, which the session bus has started.
    public init(running process: consuming PidFD, pid: Int32, loop: EventLoop) throws(BusFailure) {
        self.process = process
        (self.pid, unit, gate, self.loop) = (pid, nil, -1, loop)
        try watchEnd { [unowned self] in ended(.unknown) }
    }

    deinit {
        source?.cancel()
        end?.cancel()
        if gate >= 0 { close(gate) }
    }

    /// A pidfd of the process, owned by this object. It is readable once the process has ended.
    public var descriptor: Int32 { process.rawValue }

    /// Whether the process has ended.
    public var hasExited: Bool { ending != nil || process.hasExited }

    /// Lets the program run.
    ///
    /// - Parameter done: called when the program runs, or with the reason why it cannot be run.
    public func proceed(_ done: @escaping (_ why: String?) -> Void = { _ in }) {
        do throws(BusFailure) {
            source = try loop.watch(gate) { [self] _ in
                source?.cancel()
                source = nil
                var number: Int32 = 0
                let isFailure = read(gate, &number, MemoryLayout<Int32>.size) == MemoryLayout<Int32>.size
                done(isFailure ? String(cString: strerror(number)) : nil)
            }
        } catch {
            return done("\(error)")
        }
        var word: UInt8 = 1
        // If the process has ended, the event source reports it.
        _ = send(gate, &word, 1, Int32(MSG_NOSIGNAL))
    }

    /// Makes the process end at its gate, without running the program.
    public func cancel() { shutdown(gate, Int32(SHUT_RDWR)) }

    /// Calls `handler` once it is known how the process ended, or at once if it is already known.
    public func onEnd(_ handler: @escaping (ExitStatus) -> Void) {
        if let ending { handler(ending) } else { handlers.append(handler) }
    }

    /// Calls `body` once when the kernel reports the end.
    func watchEnd(_ body: @escaping () -> Void) throws(BusFailure) {
        end = try loop.watch(process.rawValue) { [unowned self] _ in
            end?.cancel()
            end = nil
            body()
        }
    }

    func ended(_ status: ExitStatus) {
        // Since Linux 6.15 the kernel reports the status to processes that are not the parent.
        let status = status == .unknown ? process.exitStatus() : status
        ending = status
        for handler in handlers { handler(status) }
        handlers = []
    }
}

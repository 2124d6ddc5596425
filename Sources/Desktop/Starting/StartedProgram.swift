import AppStateBus
import Glibc
public import Linux

/// A program that was started. It waits at its gate, runs, or has ended.
public final class StartedProgram {
    /// The PID of its process, the same at the gate and afterwards.
    public let pid: Int32
    /// The unit of the program. Nil: it is our child.
    public let unit: String?
    private let id: String
    private let process: WaitingProcess
    /// How the process ended. Nil: it has not ended, or the service manager has not reported yet how. If neither the
    /// service manager nor the kernel reports it within ten seconds, it is `unknown`.
    public private(set) var ending: ExitStatus?
    private var handlers: [(ExitStatus) -> Void] = []

    init(_ request: ProgramRequest, _ process: WaitingProcess, unit: String?) {
        id = request.id
        self.process = process
        self.unit = unit
        pid = process.pid
    }

    /// A pidfd of the process, owned by this object. It is readable once the process has ended.
    public var descriptor: Int32 { process.descriptor }

    /// Whether the process has ended.
    public var hasExited: Bool { ending != nil || process.hasExited }

    /// Lets the program run. Only the first call of this method or `cancel` has an effect.
    ///
    /// - Parameter done: called when the program runs, or with the failure if it cannot be run. If neither is known
    ///   within ten seconds, the program counts as running.
    public func proceed(_ done: @escaping (DesktopFailure?) -> Void = { _ in }) {
        do throws(BusFailure) {
            try process.proceed { [id] number in
                done(number.map { .notStarted(id: id, why: String(cString: strerror($0))) })
            }
        } catch {
            done(.notStarted(id: id, why: "\(error)"))
        }
    }

    /// Makes the process end at its gate, without running the program.
    public func cancel() { process.cancel() }

    /// Calls `handler` once it is known how the process ended, or at once if it is already known.
    public func onEnd(_ handler: @escaping (ExitStatus) -> Void) {
        if let ending { handler(ending) } else { handlers.append(handler) }
    }

    func ended(_ status: ExitStatus) {
        guard ending == nil else { return }
        // Since Linux 6.15 the kernel reports the status to processes that are not the parent.
        ending = status == .unknown ? process.exitStatus : status
        let handlers = handlers
        self.handlers = []
        for handler in handlers { handler(ending ?? .unknown) }
    }
}

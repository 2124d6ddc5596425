import AppStateBus
import Glibc
public import Linux

/// A program that was started: it waits at its gate, runs, or has ended.
public final class StartedProgram {
    /// The number of its process, from the gate on.
    public let pid: Int32
    /// Its unit; nil: it is our child.
    public let unit: String?
    private let id: String
    private let process: WaitingProcess
    /// How its process ended; nil: it has not, or the service manager has not told yet how. Ten seconds after its end it is
    /// `unknown`, where neither that nor the kernel has told.
    public private(set) var ending: ExitStatus?
    private var handlers: [(ExitStatus) -> Void] = []

    init(_ request: ProgramRequest, _ process: WaitingProcess, unit: String?) {
        id = request.id
        self.process = process
        self.unit = unit
        pid = process.pid
    }

    /// A pidfd of its process, ours: readable once it has ended.
    public var descriptor: Int32 { process.descriptor }

    /// Whether its process has ended.
    public var hasExited: Bool { ending != nil || process.hasExited }

    /// Lets it run. Only the first call of this or `cancel` does anything.
    ///
    /// - Parameter done: called when it runs; with the failure where its program cannot be run.
    public func proceed(_ done: @escaping (DesktopFailure?) -> Void = { _ in }) {
        do throws(BusFailure) {
            try process.proceed { [id] number in
                done(number.map { .notStarted(id: id, why: String(cString: strerror($0))) })
            }
        } catch {
            done(.notStarted(id: id, why: "\(error)"))
        }
    }

    /// Has it end at its gate: nothing of it runs.
    public func cancel() { process.cancel() }

    /// Calls `handler` once it is known how its process ended, at once where it is known.
    public func onEnd(_ handler: @escaping (ExitStatus) -> Void) {
        if let ending { handler(ending) } else { handlers.append(handler) }
    }

    func ended(_ status: ExitStatus) {
        guard ending == nil else { return }
        // Since Linux 6.15 the kernel tells it by itself.
        ending = status == .unknown ? process.exitStatus : status
        let handlers = handlers
        self.handlers = []
        for handler in handlers { handler(ending ?? .unknown) }
    }
}

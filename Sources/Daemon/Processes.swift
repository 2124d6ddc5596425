import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// The processes that matter, each held by a pidfd, so that its end is seen at once and no later process
/// with the same number is taken for it.
final class Processes {
    private final class Tracked {
        let descriptor: PidFD
        var source: Source?

        init(_ descriptor: consuming PidFD) { self.descriptor = descriptor }
    }

    private let loop: EventLoop
    private let report: (Fact) -> Void
    private var tracked: [ProcessID: Tracked] = [:]

    init(loop: EventLoop, report: @escaping (Fact) -> Void) {
        self.loop = loop
        self.report = report
    }

    /// How many there are.
    var count: Int { tracked.count }

    func isTracked(_ process: ProcessID) -> Bool { tracked[process] != nil }

    /// Takes the pidfd and watches it.
    func track(_ process: ProcessID, _ descriptor: consuming PidFD) throws(BusFailure) {
        guard tracked[process] == nil else { return }
        let entry = Tracked(descriptor)
        tracked[process] = entry
        do {
            entry.source = try loop.watch(entry.descriptor.rawValue) { [weak self] _ in self?.exited(process) }
        } catch {
            tracked[process] = nil
            throw error
        }
    }

    func forget(_ process: ProcessID) {
        guard let entry = tracked.removeValue(forKey: process) else { return }
        entry.source?.cancel()
    }

    /// Sends a signal to the very process that was registered.
    func send(_ signal: Int32, to process: ProcessID) throws(KernelFailure) {
        guard let entry = tracked[process] else {
            throw KernelFailure(operation: "pidfd_send_signal", subject: process.description, errno: ESRCH)
        }
        try entry.descriptor.send(signal)
    }

    private func exited(_ process: ProcessID) {
        guard let entry = tracked[process] else { return }
        entry.source?.cancel()
        entry.source = nil
        report(.exited(process, ExitReason(entry.descriptor.exitStatus())))
    }
}

extension ExitReason {
    /// What a process's end says of itself (wait(2); signal(7) for the signals that dump core).
    init(_ status: ExitStatus) {
        switch status {
        case .exited: self = .exited
        case .signalled(_, coreDumped: true): self = .crashed
        case .signalled(let signal, coreDumped: false):
            let crashes = [SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS]
            self = crashes.contains(signal) ? .crashed : .killed
        case .unknown: self = .unknown
        }
    }
}

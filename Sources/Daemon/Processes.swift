import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// The processes that matter. Each is held by a pidfd, so that its end is detected at once and no later
/// process with the same number is mistaken for it.
final class Processes {
    private final class Tracked {
        let descriptor: PidFD
        let number: UInt64

        init(_ descriptor: consuming PidFD, _ number: UInt64) {
            self.descriptor = descriptor
            self.number = number
        }
    }

    private let report: (Fact) -> Void
    private let watch: PollSet
    private var source: Source?
    private var tracked: [ProcessID: Tracked] = [:]
    private var processes: [UInt64: ProcessID] = [:]
    private var lastNumber: UInt64 = 0
    private var stored: Set<ProcessID> = []
    /// Determines whether the kernel's out-of-memory killer has chosen this process. The answer may take a moment.
    var wasChosen: (ProcessID, @escaping (Bool) -> Void) -> Void = { $1(false) }

    /// Determines how a process has ended if the kernel does not report it. The answer may take a moment.
    var howEnded: (ProcessID, @escaping (ExitStatus) -> Void) -> Void = { $1(.unknown) }

    init(loop: EventLoop, report: @escaping (Fact) -> Void) throws {
        self.report = report
        watch = try PollSet()
        source = try loop.watch(watch.descriptor) { [weak self] _ in self?.takeExit() }
    }

    func isTracked(_ process: ProcessID) -> Bool { tracked[process] != nil }

    /// Takes the pidfd and watches it.
    func track(_ process: ProcessID, _ descriptor: consuming PidFD) throws(KernelFailure) {
        guard tracked[process] == nil else { return }
        lastNumber += 1
        let entry = Tracked(descriptor, lastNumber)
        try watch.add(entry.descriptor.rawValue, as: entry.number)
        tracked[process] = entry
        processes[entry.number] = process
    }

    /// Stores the pidfd in the service manager's descriptor store for the next daemon.
    func store(_ process: ProcessID) {
        guard let entry = tracked[process], !stored.contains(process) else { return }
        if Service.store(entry.descriptor.rawValue, as: Self.storedName(process)) {
            stored.insert(process)
        }
    }

    /// Removes all of them from the service manager's descriptor store.
    func dropStored() {
        for process in stored { Service.dropStored(Self.storedName(process)) }
        stored = []
    }

    static func storedName(_ process: ProcessID) -> String { "process-\(process.pid)-\(process.startTime)" }

    func forget(_ process: ProcessID) {
        guard let entry = tracked.removeValue(forKey: process) else { return }
        if stored.remove(process) != nil { Service.dropStored(Self.storedName(process)) }
        watch.remove(entry.descriptor.rawValue)
        processes[entry.number] = nil
    }

    /// Sends a signal to exactly the process that was registered.
    func send(_ signal: Int32, to process: ProcessID) throws(KernelFailure) {
        guard let entry = tracked[process] else {
            throw KernelFailure(operation: "pidfd_send_signal", subject: process.description, errno: ESRCH)
        }
        try entry.descriptor.send(signal)
    }

    /// Handles one exit in each turn: the bus is read in between, however many processes end at once.
    private func takeExit() {
        guard let number = watch.next(), let process = processes[number], let entry = tracked[process] else {
            return
        }
        watch.remove(entry.descriptor.rawValue)
        let status = entry.descriptor.exitStatus()
        if case .unknown = status {
            return howEnded(process) { [weak self] in self?.conclude(process, $0) }
        }
        conclude(process, status)
    }

    private func conclude(_ process: ProcessID, _ status: ExitStatus) {
        let reason = ExitReason(status)
        guard [.killed, .unknown].contains(reason) else {
            return report(.exited(process, reason, status: status.number))
        }
        wasChosen(process) { [report] in
            report(.exited(process, $0 ? .outOfMemory : reason, status: status.number))
        }
    }
}

extension ExitStatus {
    /// The exit status, or the number of the signal; nil if the kernel does not report it.
    var number: Int32? {
        switch self {
        case .exited(let status): status
        case .signalled(let signal, _): signal
        case .unknown: nil
        }
    }
}

extension ExitReason {
    /// The reason that follows from a process's exit status (wait(2); signal(7) for the signals that dump core).
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

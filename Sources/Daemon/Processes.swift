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

    private let loop: EventLoop
    private let proc: Proc
    private let core: Core
    private let table: ApplicationTable
    private let agents: Agents
    private let handed: HandedOver
    /// nil: out-of-memory kills by the kernel cannot be told from other kills.
    private var killer: OOMSensor?
    private let watch: PollSet
    private var source: Source?
    private var tracked: [ProcessID: Tracked] = [:]
    private var processes: [UInt64: ProcessID] = [:]
    private var lastNumber: UInt64 = 0
    /// Processes that have ended, and whose session agents were asked how.
    private var asked: Set<ProcessID> = []

    /// How long a session agent may take for that, in microseconds.
    private static let patience: UInt64 = 1_000_000

    init(
        loop: EventLoop, proc: Proc, core: Core, table: ApplicationTable, agents: Agents, handed: HandedOver
    ) throws {
        self.loop = loop
        self.proc = proc
        self.core = core
        self.table = table
        self.agents = agents
        self.handed = handed
        watch = try PollSet()
        source = try loop.watch(watch.descriptor) { [weak self] _ in self?.readExit() }
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

    func forget(_ process: ProcessID) {
        guard let entry = tracked.removeValue(forKey: process) else { return }
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
    private func readExit() {
        guard let number = watch.next(), let process = processes[number], let entry = tracked[process] else {
            return
        }
        watch.remove(entry.descriptor.rawValue)
        let status = entry.descriptor.exitStatus()
        if case .unknown = status { ask(process) } else { conclude(process, status) }
    }

    /// Whether it has ended, although the life cycle does not know that yet.
    func hasEnded(_ process: ProcessID) -> Bool { asked.contains(process) }

    /// Asks the agent that has launched it how a process has ended, because the kernel does not report it.
    private func ask(_ process: ProcessID) {
        // For a process that is being ended, the reason is already known, and the next end must not wait for
        // this answer.
        guard let application = core.machine.application(of: process), !application.isTerminating,
            let launch = table[application.number]?.launch, let agent = launch.agent
        else { return conclude(process, .unknown) }
        asked.insert(process)
        let answered = { [weak self] (status: ExitStatus) in
            self?.asked.remove(process)
            self?.conclude(process, status)
        }
        agents.call(agent, of: application.user, LauncherMethod.getExit, within: Self.patience) {
            message throws(BusFailure) in
            try message.append(launch.number)
        } answered: {
            answered(ExitStatus(reading: $0))
        } failed: { _ in
            answered(.unknown)
        }
    }

    // MARK: The kernel's out-of-memory killer

    /// From now on, its kills are told from others. Must be called again if a CPU has come online.
    func watchKills() throws {
        killer = try OOMSensor(loop: loop, proc: proc, handed: handed, now: { Clock.monotonicMicroseconds })
    }

    private func conclude(_ process: ProcessID, _ status: ExitStatus) {
        let reason = ExitReason(status)
        // The reason is already known for an application that is being ended.
        guard [.killed, .unknown].contains(reason), let killer,
            core.machine.application(of: process)?.isTerminating != true
        else { return core.report(.exited(process, reason, status: status.number)) }
        killer.wasChosen(process.pid) { [core] in
            core.report(.exited(process, $0 ? .outOfMemory : reason, status: status.number))
        }
    }
}

extension ExitStatus {
    /// The answer to `GetExit`.
    fileprivate init(reading reply: borrowing Message) {
        guard let how = try? reply.readString(), let status = try? reply.readInt32() else {
            self = .unknown
            return
        }
        self =
            switch how {
            case "exited": .exited(status)
            case "signaled": .signalled(status, coreDumped: false)
            default: .unknown
            }
    }

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

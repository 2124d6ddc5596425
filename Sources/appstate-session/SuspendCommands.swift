import AppStateBus
import AppStateContract
import Systemd

/// Runs the commands of a user's rules before an application is suspended and when it is in use again: `ExecSuspend=`,
/// `ExecResume=`. For each application, one command runs at a time.
///
/// Once such an application is in a state in which policy suspends it, its command is an objection until it has succeeded. If
/// the command fails or takes too long, that stays an objection until the application has been in front once more.
final class SuspendCommands {
    /// The commands that a rule runs for one application.
    struct Commands: Equatable {
        let id: String
        let suspend: String?
        let resume: String?
        /// Policy suspends the application while it is visible, too.
        var isInactiveEnough = false
    }

    private let loop: EventLoop
    private let journal: Journal
    private let limit: UInt64
    private let settling: UInt64
    private let tell: (Set<Int32>) -> Void
    private var commands: [Int32: Commands] = [:]
    private var states: [Int32: LifeCycleState] = [:]
    private var progress: [Int32: Progress] = [:]
    private var timer: Timer?

    /// The progress of an application's commands.
    private struct Progress {
        /// The result of `ExecSuspend=` since the application was in front, or suspended; nil: the command has not
        /// ended.
        var hasSucceeded: Bool?
        /// `ExecSuspend=` was begun, or the application was suspended: `ExecResume=` must follow.
        var owesResume = false
        /// The commands of the rule at that time: the rule may be gone when `ExecResume=` is due.
        var owed: Commands?
        /// The application runs again after it was suspended, in whatever state.
        var resumes = false
        /// `ExecSuspend=` is not run before this time.
        var settled: UInt64 = 0
        var running: Running?
        /// It is no longer registered: `ExecResume=` follows the command that runs.
        var isReleased = false
    }

    private struct Running {
        let command: Command
        let isSuspend: Bool
        /// The command was killed, and its result is ignored.
        var isAbandoned = false
    }

    /// - Parameters:
    ///   - limit: how long a command may take, in microseconds.
    ///   - settling: how long no command is begun after an application was let run, in microseconds: such an
    ///     application is usually on its way to the front.
    ///   - tell: gets the main processes of applications that must not be suspended, whenever they change.
    init(
        loop: EventLoop, journal: Journal, limit: UInt64 = 10_000_000, settling: UInt64 = 500_000,
        tell: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.journal = journal
        self.limit = limit
        self.settling = settling
        self.tell = tell
        timer = try loop.timer { [unowned self] in
            for pid in Array(progress.keys) { proceed(pid) }
        }
    }

    /// Takes the commands of the rules, by the main processes of applications.
    func apply(_ commands: [Int32: Commands]) {
        guard commands != self.commands else { return }
        let former = self.commands
        self.commands = commands
        for pid in Set(former.keys).union(commands.keys) where former[pid] != commands[pid] {
            // If a rule no longer suspends it while it is visible, it is in use, as if it had come to the
            // front.
            if former[pid]?.suspend != commands[pid]?.suspend || !isResting(pid) {
                abandon(pid)
                progress[pid]?.hasSucceeded = nil
            }
            proceed(pid)
        }
        publish()
    }

    /// Whether no command runs.
    var isAtRest: Bool { progress.values.allSatisfy { $0.running == nil } }

    /// Takes the current states of all applications. An application that is not among them has ended.
    func learn(_ states: [Int32: LifeCycleState]) {
        for pid in self.states.keys where states[pid] == nil {
            abandon(pid)
            progress[pid]?.owesResume = false
            self.states[pid] = nil
            proceed(pid)
        }
        for (pid, state) in states where self.states[pid] != state { move(pid, to: state) }
        publish()
    }

    /// Handles an application that is no longer registered and may keep running: its pending command runs
    /// now.
    func release(_ pid: Int32) {
        guard progress[pid]?.owesResume == true else { return }
        progress[pid]?.owesResume = false
        if progress[pid]?.running == nil {
            runResume(of: pid)
        } else {
            progress[pid]?.isReleased = true
        }
    }

    private func move(_ pid: Int32, to state: LifeCycleState) {
        let wasSuspended = states[pid] == .suspended
        states[pid] = state
        var next = progress[pid] ?? Progress()
        if state == .suspended {
            next.owesResume = true
            next.owed = commands[pid] ?? next.owed
        } else if wasSuspended {
            (next.hasSucceeded, next.resumes) = (nil, true)
            next.settled = loop.now + settling
        } else if !isResting(pid) {
            next.hasSucceeded = nil
        }
        progress[pid] = next
        if !isResting(pid) { abandon(pid) }
        proceed(pid)
    }

    /// Whether the application is in a state in which policy suspends it.
    private func isResting(_ pid: Int32) -> Bool {
        switch states[pid] {
        case .background: true
        case .inactive: commands[pid]?.isInactiveEnough == true
        case .active, .suspended, .notRunning, nil: false
        }
    }

    /// Kills `ExecSuspend=` if it runs.
    private func abandon(_ pid: Int32) {
        guard progress[pid]?.running?.isSuspend == true else { return }
        progress[pid]?.running?.isAbandoned = true
        progress[pid]?.running?.command.kill()
    }

    /// Begins the command that is due, if none runs.
    private func proceed(_ pid: Int32) {
        guard let now = progress[pid], now.running == nil else { return }
        guard states[pid] != nil else {
            progress[pid] = nil
            return
        }
        if now.owesResume, states[pid] != .suspended, states[pid] != .notRunning,
            now.resumes || !isResting(pid)
        {
            progress[pid]?.owesResume = false
            progress[pid]?.resumes = false
            if runResume(of: pid) { return }
        }
        progress[pid]?.resumes = false
        guard isResting(pid), now.hasSucceeded == nil, let commands = commands[pid],
            let line = commands.suspend
        else { return }
        guard now.settled <= loop.now else {
            let times = progress.values.map(\.settled).filter { $0 > loop.now }
            timer?.arm(at: times.min() ?? now.settled)
            return
        }
        progress[pid]?.owesResume = true
        progress[pid]?.owed = commands
        run(line, of: commands, for: pid, isSuspend: true)
    }

    /// - Returns: whether there is a command.
    @discardableResult
    private func runResume(of pid: Int32) -> Bool {
        guard
            let commands = [commands[pid], progress[pid]?.owed].compactMap(\.self).first(where: {
                $0.resume != nil
            }),
            let line = commands.resume
        else { return false }
        run(line, of: commands, for: pid, isSuspend: false)
        return true
    }

    private func publish() {
        let objecting = commands.filter { pid, commands in
            // An application that was suspended by a user or another program must not be let run for this.
            commands.suspend != nil && progress[pid]?.hasSucceeded != true && states[pid] != .suspended
        }
        tell(Set(objecting.keys))
    }

    private func run(_ line: String, of commands: Commands, for pid: Int32, isSuspend: Bool) {
        do {
            let command = try Command(
                line, environment: ["APPSTATED_ID=\(commands.id)", "APPSTATED_PID=\(pid)"], loop: loop,
                limit: limit
            ) { [unowned self] failure in ended(pid, commands.id, failure) }
            progress[pid]?.running = Running(command: command, isSuspend: isSuspend)
        } catch {
            journal.log(.warning, "a command in the rule for \(commands.id) cannot be run: \(error)")
            if isSuspend { progress[pid]?.hasSucceeded = false }
        }
    }

    private func ended(_ pid: Int32, _ id: String, _ failure: String?) {
        guard let running = progress[pid]?.running else { return }
        progress[pid]?.running = nil
        defer { publish() }
        if progress[pid]?.isReleased == true {
            progress[pid]?.isReleased = false
            if runResume(of: pid) { return }
        }
        if !running.isAbandoned {
            if running.isSuspend { progress[pid]?.hasSucceeded = failure == nil }
            if let failure {
                let key = running.isSuspend ? "ExecSuspend" : "ExecResume"
                let after =
                    running.isSuspend ? "; the application is not suspended until it has been in front" : ""
                journal.log(.warning, "\(key)= of \(id) \(failure)\(after)")
            }
        }
        proceed(pid)
    }
}

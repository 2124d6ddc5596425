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
    }

    private let loop: EventLoop
    private let journal: Journal
    private let limit: UInt64
    private let settling: UInt64
    private let tell: (Set<Int32>) -> Void
    private var commands: [Int32: Commands] = [:]
    private var states: [Int32: LifeCycleState] = [:]
    /// The applications that are suspended, or in a state in which policy suspends them.
    private var resting: Set<Int32> = []
    private var progress: [Int32: Progress] = [:]
    private var timer: Timer?

    /// The progress of an application's commands.
    private struct Progress {
        /// The result of `ExecSuspend=` since the application was in front, or suspended; nil: the command has not
        /// ended.
        var hasSucceeded: Bool?
        /// `ExecSuspend=` was begun, or the application was suspended: the `ExecResume=` of this must follow. The rule may
        /// be gone by then.
        var owed: Commands?
        /// It follows although the application is not in use: it runs again, or is no longer registered.
        var isDue = false
        /// `ExecSuspend=` is not run before this time.
        var settled: UInt64 = 0
        var running: Running?
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
            if former[pid]?.suspend != commands[pid]?.suspend {
                abandon(pid)
                progress[pid]?.hasSucceeded = nil
            }
            if states[pid] == .suspended || progress[pid]?.owed != nil { owe(pid) }
            proceed(pid)
        }
        publish()
    }

    /// Whether no command runs.
    var isAtRest: Bool { progress.values.allSatisfy { $0.running == nil } }

    /// Takes the current applications. One that is not among them has ended.
    func learn(_ applications: Applications) {
        let former = (states: states, resting: resting)
        (states, resting) = (applications.states, applications.resting)
        for pid in former.states.keys where states[pid] == nil {
            abandon(pid)
            if progress[pid]?.isDue == false { progress[pid]?.owed = nil }
            proceed(pid)
        }
        for pid in states.keys
        where former.states[pid] != states[pid] || former.resting.contains(pid) != resting.contains(pid) {
            move(pid, from: former.states[pid])
        }
        publish()
    }

    /// Handles an application that is no longer registered and may keep running: its pending command runs
    /// now.
    func release(_ pid: Int32) {
        progress[pid]?.isDue = true
        proceed(pid)
    }

    private func move(_ pid: Int32, from former: LifeCycleState?) {
        if progress[pid] == nil { progress[pid] = Progress() }
        if states[pid] == .suspended {
            owe(pid)
        } else if former == .suspended || !resting.contains(pid) {
            progress[pid]?.hasSucceeded = nil
        }
        if former == .suspended, states[pid] != .suspended, states[pid] != .notRunning {
            progress[pid]?.isDue = true
            progress[pid]?.settled = loop.now + settling
        }
        if !mayBeSuspended(pid) { abandon(pid) }
        proceed(pid)
    }

    /// Whether the application is in a state in which policy suspends it.
    private func mayBeSuspended(_ pid: Int32) -> Bool {
        resting.contains(pid) && states[pid] != .suspended
    }

    private func owe(_ pid: Int32) {
        if let commands = commands[pid], commands.resume != nil { progress[pid]?.owed = commands }
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
        let isInUse = [.active, .inactive].contains(states[pid]) && !resting.contains(pid)
        if let owed = now.owed, let line = owed.resume, now.isDue || isInUse {
            progress[pid]?.owed = nil
            progress[pid]?.isDue = false
            return run(line, of: owed, for: pid, isSuspend: false)
        }
        progress[pid]?.isDue = false
        guard states[pid] != nil else {
            progress[pid] = nil
            return
        }
        guard mayBeSuspended(pid), now.hasSucceeded == nil, let commands = commands[pid],
            let line = commands.suspend
        else { return }
        guard now.settled <= loop.now else {
            let times = progress.values.map(\.settled).filter { $0 > loop.now }
            timer?.arm(at: times.min() ?? now.settled)
            return
        }
        owe(pid)
        run(line, of: commands, for: pid, isSuspend: true)
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
        publish()
    }
}

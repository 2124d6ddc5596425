import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd

/// Runs the commands of a user's rules before an application is suspended and when it is in use again: `ExecSuspend=`,
/// `ExecResume=`. One at a time for each application.
///
/// From when such an application comes to where policy suspends it, it is exempt until its command has succeeded. Where that
/// fails, or takes too long, it stays exempt until it has been in front once more.
final class SuspendCommands {
    /// What a rule has run for one application.
    struct Commands: Equatable {
        let id: String
        let suspend: String?
        let resume: String?
        /// Policy suspends it while it can be seen, too.
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

    /// How far an application is with its commands.
    private struct Progress {
        /// What came of `ExecSuspend=` since it was in front, or suspended; nil: it has not ended.
        var hasSucceeded: Bool?
        /// `ExecSuspend=` was begun, or it was suspended: `ExecResume=` is to follow.
        var owesResume = false
        /// It runs again after it was suspended, wherever it is.
        var resumes = false
        /// Not before, `ExecSuspend=` is run.
        var settled: UInt64 = 0
        var running: Running?
    }

    private struct Running {
        let number: UInt64
        let command: Command
        let isSuspend: Bool
        /// It was killed, and tells nothing.
        var isAbandoned = false
    }

    private var lastNumber: UInt64 = 0

    /// - Parameters:
    ///   - limit: a command may take so long; microseconds.
    ///   - settling: who is let run is on its way to the front, as a rule: so long nothing is begun; microseconds.
    ///   - tell: gets the main processes of those that must not be suspended, whenever they are others.
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

    /// What the rules say, by the main processes of applications.
    func apply(_ commands: [Int32: Commands]) {
        guard commands != self.commands else { return }
        let former = self.commands
        self.commands = commands
        for pid in Set(former.keys).union(commands.keys) where former[pid] != commands[pid] {
            if former[pid]?.suspend != commands[pid]?.suspend {
                abandon(pid)
                progress[pid]?.hasSucceeded = nil
            }
            proceed(pid)
        }
        publish()
    }

    /// All applications, as they are now. Whoever is not among them has ended.
    func learn(_ states: [Int32: LifeCycleState]) {
        for pid in self.states.keys where states[pid] == nil {
            abandon(pid)
            progress[pid]?.owesResume = false
            self.states[pid] = nil
        }
        for (pid, state) in states where self.states[pid] != state { move(pid, to: state) }
        publish()
    }

    private func move(_ pid: Int32, to state: LifeCycleState) {
        let wasSuspended = states[pid] == .suspended
        states[pid] = state
        var next = progress[pid] ?? Progress()
        if state == .suspended {
            next.owesResume = true
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

    /// It is where policy suspends it.
    private func isResting(_ pid: Int32) -> Bool {
        switch states[pid] {
        case .background: true
        case .inactive: commands[pid]?.isInactiveEnough == true
        case .active, .suspended, .notRunning, nil: false
        }
    }

    /// Ends `ExecSuspend=`, if it runs.
    private func abandon(_ pid: Int32) {
        guard progress[pid]?.running?.isSuspend == true else { return }
        progress[pid]?.running?.isAbandoned = true
        progress[pid]?.running?.command.kill()
    }

    /// Begins what is due, if nothing runs.
    private func proceed(_ pid: Int32) {
        guard let now = progress[pid], now.running == nil else { return }
        guard states[pid] != nil else {
            progress[pid] = nil
            return
        }
        if now.owesResume, states[pid] != .suspended, now.resumes || !isResting(pid) {
            progress[pid]?.owesResume = false
            progress[pid]?.resumes = false
            if let commands = commands[pid], let line = commands.resume {
                return run(line, of: commands, for: pid, isSuspend: false)
            }
        }
        progress[pid]?.resumes = false
        guard isResting(pid), now.hasSucceeded == nil, let commands = commands[pid],
            let line = commands.suspend
        else { return }
        guard now.settled <= loop.now else {
            timer?.arm(at: now.settled)
            return
        }
        progress[pid]?.owesResume = true
        run(line, of: commands, for: pid, isSuspend: true)
    }

    private func publish() {
        let exempt = commands.filter { pid, commands in
            // Whoever was suspended at somebody's word is not to be let run for this.
            commands.suspend != nil && progress[pid]?.hasSucceeded != true && states[pid] != .suspended
        }
        tell(Set(exempt.keys))
    }

    private func run(_ line: String, of commands: Commands, for pid: Int32, isSuspend: Bool) {
        lastNumber += 1
        let number = lastNumber
        do {
            let command = try Command(
                line, environment: ["APPSTATED_ID=\(commands.id)", "APPSTATED_PID=\(pid)"], loop: loop,
                limit: limit
            ) { [unowned self] failure in ended(pid, number, commands.id, failure) }
            progress[pid]?.running = Running(number: number, command: command, isSuspend: isSuspend)
        } catch {
            journal.log(.warning, "a command of the rule of \(commands.id) cannot be run: \(error)")
            if isSuspend { progress[pid]?.hasSucceeded = false }
        }
    }

    private func ended(_ pid: Int32, _ number: UInt64, _ id: String, _ failure: String?) {
        guard let running = progress[pid]?.running, running.number == number else { return }
        progress[pid]?.running = nil
        if !running.isAbandoned {
            if running.isSuspend { progress[pid]?.hasSucceeded = failure == nil }
            if let failure {
                let key = running.isSuspend ? "ExecSuspend" : "ExecResume"
                let after = running.isSuspend ? "; it is not suspended until it was in front" : ""
                journal.log(.warning, "\(key)= of \(id) \(failure)\(after)")
            }
        }
        proceed(pid)
        publish()
    }
}

/// A command line that runs by itself, in a group of its own.
final class Command {
    private let pid: Int32
    private let process: PidFD
    private var source: Source?
    private var timer: Timer?
    private let done: (String?) -> Void
    private var isLate = false

    /// Starts it with sh(1).
    ///
    /// - Parameters:
    ///   - environment: `NAME=value`, beside our own.
    ///   - limit: after so many microseconds it is killed.
    ///   - done: gets why it has failed; nil: it has succeeded.
    init(
        _ line: String, environment: [String], loop: EventLoop, limit: UInt64,
        done: @escaping (_ failure: String?) -> Void
    ) throws {
        self.done = done
        pid = try Self.spawn(line, environment)
        process = try PidFD(pid: pid)
        source = try loop.watch(process.rawValue) { [unowned self] _ in finish() }
        timer = try loop.timer { [unowned self] in
            isLate = true
            kill()
        }
        timer?.arm(at: loop.now + limit)
    }

    deinit {
        if source != nil {
            source?.cancel()
            kill()
            waitpid(pid, nil, 0)
        }
    }

    /// Ends it, and what it has started.
    func kill() { Glibc.kill(-pid, SIGKILL) }

    private func finish() {
        var status: Int32 = 0
        guard waitpid(pid, &status, WNOHANG) == pid else { return }
        source?.cancel()
        (source, timer) = (nil, nil)
        // What it has left behind in its group is no command of ours any more.
        let failure: String? =
            if isLate {
                "took too long, and was killed"
            } else if status & 0x7F != 0 {
                "was killed by signal \(status & 0x7F)"
            } else if status != 0 {
                "ended with \(status >> 8 & 0xFF)"
            } else {
                nil
            }
        done(failure)
    }

    private static func spawn(_ line: String, _ environment: [String]) throws(KernelFailure) -> Int32 {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGCHLD] { sigaddset(&signals, signal) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
        let own = (try? WholeFile.read("/proc/self/environ")).map {
            $0.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        }
        var pid: pid_t = 0
        let result = withStrings(["sh", "-c", "--", line]) { arguments in
            withStrings((own ?? []) + environment) { variables in
                posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments, variables)
            }
        }
        guard result == 0 else {
            throw KernelFailure(operation: "run", subject: line, errno: result)
        }
        return pid
    }

    private static func withStrings<Result>(
        _ strings: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
    ) -> Result {
        let copies = strings.map { strdup($0) }
        defer { for copy in copies { free(copy) } }
        return body(copies + [nil])
    }
}

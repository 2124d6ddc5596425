import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd

/// Runs the commands of a user's rules before an application is suspended and after it runs again: `ExecSuspend=`,
/// `ExecResume=`.
///
/// From when such an application comes to the background it is exempt, until its command has succeeded. Where that fails,
/// or takes too long, it stays exempt until it has been in front once more.
final class SuspendCommands {
    /// What a rule has run for one application.
    struct Commands: Equatable {
        let id: String
        let suspend: String?
        let resume: String?
    }

    private let loop: EventLoop
    private let journal: Journal
    private let limit: UInt64
    private let tell: (Set<Int32>) -> Void
    private var commands: [Int32: Commands] = [:]
    private var states: [Int32: LifeCycleState] = [:]
    private var preparations: [Int32: Preparation] = [:]
    /// Those that run for nobody's suspension: `ExecResume=`, and what is being killed. By their own numbers.
    private var others: [UInt64: Command] = [:]
    private var lastNumber: UInt64 = 0

    /// How far an application in the background is with `ExecSuspend=`.
    private enum Preparation {
        case running(UInt64, Command)
        case done
        case failed
    }

    /// - Parameters:
    ///   - limit: a command may take so long; microseconds.
    ///   - tell: gets the main processes of those that must not be suspended, whenever they are others.
    init(
        loop: EventLoop, journal: Journal, limit: UInt64 = 10_000_000, tell: @escaping (Set<Int32>) -> Void
    ) {
        self.loop = loop
        self.journal = journal
        self.limit = limit
        self.tell = tell
    }

    /// What the rules say, by the main processes of applications.
    func apply(_ commands: [Int32: Commands]) {
        guard commands != self.commands else { return }
        let former = self.commands
        self.commands = commands
        for (pid, command) in commands where former[pid]?.suspend != command.suspend { prepare(pid) }
        publish()
    }

    /// All applications, as they are now. Whoever is not among them has ended.
    func learn(_ states: [Int32: LifeCycleState]) {
        for pid in self.states.keys where states[pid] == nil { move(pid, to: nil) }
        for (pid, state) in states { move(pid, to: state) }
    }

    /// An application has another state; nil: it has ended.
    func move(_ pid: Int32, to state: LifeCycleState?) {
        let before = states[pid]
        guard state != before else { return }
        states[pid] = state
        if before == .suspended, state != nil, let commands = commands[pid], let line = commands.resume {
            run(line, "ExecResume", pid, commands) { _ in }
        }
        if state == .background {
            prepare(pid)
        } else if state != .suspended {
            abandon(pid)
        }
        publish()
    }

    // MARK: Preparations

    private func prepare(_ pid: Int32) {
        abandon(pid)
        guard states[pid] == .background, let commands = commands[pid], let line = commands.suspend else {
            return
        }
        preparations[pid] = .failed
        run(line, "ExecSuspend", pid, commands, isPreparation: true) { [unowned self] hasSucceeded in
            preparations[pid] = hasSucceeded ? .done : .failed
            publish()
        }
    }

    private func abandon(_ pid: Int32) {
        guard case .running(let number, let command)? = preparations.removeValue(forKey: pid) else { return }
        others[number] = command
        command.kill()
    }

    private func publish() {
        let exempt = commands.filter { pid, commands in
            guard commands.suspend != nil else { return false }
            if case .done? = preparations[pid] { return false }
            // Whoever was suspended at somebody's word is not to be let run for this.
            return states[pid] != .suspended
        }
        tell(Set(exempt.keys))
    }

    // MARK: Commands

    private func run(
        _ line: String, _ key: String, _ pid: Int32, _ commands: Commands, isPreparation: Bool = false,
        _ done: @escaping (_ hasSucceeded: Bool) -> Void
    ) {
        lastNumber += 1
        let number = lastNumber
        do {
            let command = try Command(
                line, environment: ["APPSTATED_ID=\(commands.id)", "APPSTATED_PID=\(pid)"], loop: loop,
                limit: limit
            ) { [unowned self] failure in
                if let failure { journal.log(.warning, "\(key)= of \(commands.id) \(failure)") }
                // Somebody else may wait for another one by now.
                if others.removeValue(forKey: number) != nil, isPreparation { return }
                done(failure == nil)
            }
            if isPreparation {
                preparations[pid] = .running(number, command)
            } else {
                others[number] = command
            }
        } catch {
            journal.log(.warning, "\(key)= of \(commands.id) cannot be run: \(error)")
            done(false)
        }
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
        let result = withStrings(["sh", "-c", line]) { arguments in
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

import AppStateBus
import Glibc
import Linux

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
        let pid = try Self.spawn(line, environment)
        self.pid = pid
        do {
            process = try PidFD(pid: pid)
        } catch {
            // Nobody would wait for its end.
            Glibc.kill(-pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw error
        }
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
        let ended = waitpid(pid, &status, WNOHANG)
        guard ended != 0 else { return }
        source?.cancel()
        (source, timer) = (nil, nil)
        // What it has left behind in its group is no command of ours any more.
        done(
            isLate
                ? "took too long, and was killed"
                : Self.failure(ended == pid ? ExitStatus(waitStatus: status) : .unknown))
    }

    private static func failure(_ status: ExitStatus) -> String? {
        switch status {
        case .exited(0): nil
        case .exited(let code): "ended with \(code)"
        case .signalled(let signal, _): "was killed by signal \(signal)"
        case .unknown: "ended, nobody knows how"
        }
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

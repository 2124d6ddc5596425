import AppStateBus
import Glibc
import Linux

/// A process that is our child, in a session of its own: setsid(2).
final class ChildProgram {
    let pid: Int32
    private let process: PidFD
    private var source: Source?

    /// Starts it.
    ///
    /// - Parameters:
    ///   - program: its file.
    ///   - arguments: with what it is called by.
    ///   - environment: all of it, `NAME=value`.
    ///   - ended: called once, with how it ended. It holds this until then.
    init(
        _ program: String, _ arguments: [String], environment: [String], loop: EventLoop,
        ended: @escaping (ExitStatus) -> Void
    ) throws {
        let pid = try Self.spawn(program, arguments, environment)
        self.pid = pid
        do {
            process = try PidFD(pid: pid)
        } catch {
            // Nobody would wait for its end.
            Glibc.kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw error
        }
        do {
            source = try loop.watch(process.rawValue) { [self] _ in
                var status: Int32 = 0
                let found = waitpid(pid, &status, WNOHANG)
                guard found != 0 else { return }
                source?.cancel()
                source = nil
                ended(found == pid ? ExitStatus(waitStatus: status) : .unknown)
            }
        } catch {
            Glibc.kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw error
        }
    }

    /// Ends it, and what is left in its process group.
    func kill() {
        // Nobody has waited for it yet, so the number is its own.
        if source != nil { Glibc.kill(-pid, SIGKILL) }
    }

    /// POSIX_SPAWN_SETSID of the C library, declared for _GNU_SOURCE alone.
    private static let ownSession: Int32 = 0x80

    private static func spawn(
        _ program: String, _ arguments: [String], _ environment: [String]
    ) throws(KernelFailure) -> Int32 {
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
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | ownSession))
        var pid: pid_t = 0
        let result = withStrings(arguments) { arguments in
            withStrings(environment) { posix_spawn(&pid, program, &actions, &attributes, arguments, $0) }
        }
        guard result == 0 else {
            throw KernelFailure(operation: "run", subject: program, errno: result)
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

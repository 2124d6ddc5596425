public import AppStateBus
import Glibc
public import Linux

/// A child process of ours in a session of its own: setsid(2).
public final class ChildProgram {
    let pid: Int32
    private let process: PidFD
    private var source: Source?

    /// Starts the process.
    ///
    /// - Parameters:
    ///   - program: the file of the program.
    ///   - arguments: the arguments, beginning with `argv[0]`.
    ///   - environment: the whole environment, `NAME=value`.
    ///   - ended: called once with the exit status. The object retains itself until then.
    public init(
        _ program: String, _ arguments: [String], environment: [String], loop: EventLoop,
        ended: @escaping (ExitStatus) -> Void
    ) throws {
        let pid = try Spawn.run(program, arguments, environment: environment, inOwnSession: true)
        self.pid = pid
        do {
            process = try PidFD(pid: pid)
        } catch {
            // Otherwise nothing would wait for its end.
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

    /// Kills the process and everything left in its process group.
    public func kill() {
        // The process has not been reaped, so its number has not been reused.
        if source != nil { Glibc.kill(-pid, SIGKILL) }
    }
}

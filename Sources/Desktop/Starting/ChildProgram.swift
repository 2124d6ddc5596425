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
        let pid = try Spawn.run(program, arguments, environment: environment, leading: .session)
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
}

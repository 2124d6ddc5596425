import AppStateBus
import Glibc
import Linux

/// A command line that runs independently, in a process group of its own.
final class Command {
    private let pid: Int32
    private let process: PidFD
    private var source: Source?
    private var timer: Timer?
    private let done: (String?) -> Void
    private var isLate = false

    /// Starts the command line with sh(1).
    ///
    /// - Parameters:
    ///   - environment: `NAME=value`, in addition to our own environment.
    ///   - limit: the command is killed after this many microseconds.
    ///   - done: gets the reason for a failure; nil: the command has succeeded.
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
            // Otherwise nothing would wait for its end.
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

    /// Kills the command and the processes that it has started.
    func kill() { Glibc.kill(-pid, SIGKILL) }

    private func finish() {
        var status: Int32 = 0
        let ended = waitpid(pid, &status, WNOHANG)
        guard ended != 0 else { return }
        source?.cancel()
        (source, timer) = (nil, nil)
        // Processes that it has left behind in its group are no longer part of the command.
        done(
            isLate
                ? "took too long, and was killed"
                : Self.failure(ended == pid ? ExitStatus(waitStatus: status) : .unknown))
    }

    private static func failure(_ status: ExitStatus) -> String? {
        switch status {
        case .exited(0): nil
        case .exited(let code): "exited with status \(code)"
        case .signalled(let signal, _): "was killed by signal \(signal)"
        case .unknown: "ended with an unknown status"
        }
    }

    private static func spawn(_ line: String, _ environment: [String]) throws(KernelFailure) -> Int32 {
        let own = (try? WholeFile.read("/proc/self/environ")).map {
            $0.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        }
        return try Spawn.run(
            "/bin/sh", ["sh", "-c", "--", line], environment: (own ?? []) + environment, leading: .group)
    }
}

import AppStateBus
import Desktop
import Linux

/// A command line that runs independently, in a session of its own: setsid(2).
final class Command {
    private var program: ChildProgram?
    private var timer: Timer?
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
        timer = try loop.timer { [unowned self] in
            isLate = true
            kill()
        }
        timer?.arm(at: loop.now + limit)
        let own = Environment.variables(of: "self").map { "\($0.name)=\($0.value)" }
        program = try ChildProgram(
            "/bin/sh", ["sh", "-c", "--", line], environment: own + environment, loop: loop
        ) { [weak self] status in
            guard let self else { return }
            (program, timer) = (nil, nil)
            done(isLate ? "took too long, and was killed" : Self.failure(status))
        }
    }

    deinit { kill() }

    /// Kills the command and the processes that it has started.
    func kill() { program?.kill() }

    private static func failure(_ status: ExitStatus) -> String? {
        switch status {
        case .exited(0): nil
        case .exited(let code): "exited with status \(code)"
        case .signalled(let signal, _): "was killed by signal \(signal)"
        case .unknown: "ended with an unknown status"
        }
    }
}

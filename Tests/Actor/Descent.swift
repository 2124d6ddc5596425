import AppStateBus
import Glibc

/// Processes that descend from this one.
enum Descent {
    /// Makes a child that does nothing until this process's input ends.
    static func fork() throws -> Int32 {
        let child = try forked()
        if child == 0 { idle() }
        return child
    }

    /// Starts cat(1), which opens a FIFO before it is executed. Until the FIFO has a writer, this process waits in
    /// vfork(2), where it takes no stop.
    static func spawn(readingFrom fifo: String) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for output in [STDOUT_FILENO, STDERR_FILENO] {
            posix_spawn_file_actions_addopen(&actions, output, "/dev/null", O_WRONLY, 0)
        }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, fifo, O_RDONLY, 0)
        var arguments = [strdup("cat"), nil]
        defer { free(arguments[0]) }
        var child: pid_t = 0
        let result = posix_spawnp(&child, "cat", &actions, nil, &arguments, environ)
        guard result == 0 else {
            throw BusFailure(operation: "spawn", subject: "cat", errno: result)
        }
    }

    /// Makes a child that continues in this process's place: nil in the child, its PID in the parent.
    static func handOver() throws -> Int32? {
        let child = try forked()
        return child == 0 ? nil : child
    }

    /// Does nothing until the child has ended.
    static func waitForTheEnd(after child: Int32) -> Never {
        close(STDOUT_FILENO)
        close(STDERR_FILENO)
        while waitpid(child, nil, 0) < 0, errno == EINTR {}
        _exit(0)
    }

    static func execute(_ words: [String]) throws -> Never {
        guard let program = words.first else { throw failure("exec") }
        var arguments = words.map { strdup($0) } + [nil]
        execvp(program, &arguments)
        throw failure("exec")
    }

    private static func forked() throws -> Int32 {
        let child = Glibc.fork()
        guard child >= 0 else { throw failure("fork") }
        return child
    }

    /// Waits until the writer of this process's input has closed it, without reading a byte.
    private static func idle() -> Never {
        close(STDOUT_FILENO)
        close(STDERR_FILENO)
        var input = pollfd(fd: STDIN_FILENO, events: 0, revents: 0)
        while poll(&input, 1, -1) < 0, errno == EINTR {}
        _exit(0)
    }

    private static func failure(_ operation: String) -> BusFailure {
        BusFailure(operation: operation, subject: "a process", errno: errno)
    }
}

import Glibc

/// Starts programs with posix_spawn(3). The child has no signal blocked or ignored, and its standard input is empty
/// unless it is given one.
public enum Spawn {
    /// What a child has as its standard streams. The descriptors stay with the caller.
    public struct Streams: Sendable {
        let input, output, errors: Int32

        public init(input: Int32, output: Int32, errors: Int32) {
            (self.input, self.output, self.errors) = (input, output, errors)
        }
    }

    /// POSIX_SPAWN_SETSID of the C library, which is declared only for _GNU_SOURCE.
    private static let ownSession: Int32 = 0x80

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - program: its file.
    ///   - arguments: all of them, beginning with the name that it is called by.
    ///   - environment: all of it, `NAME=value`.
    ///   - inOwnSession: killing its process group reaches what it has started: setsid(2). Otherwise it stays in our
    ///     group, so that it may ask the user on our terminal.
    ///   - streams: nil: those of this process, with nothing to read.
    /// - Returns: its process ID. It is our child, and we must wait for it.
    public static func run(
        _ program: String, _ arguments: [String], environment: [String], inOwnSession: Bool,
        streams: Streams? = nil
    ) throws(KernelFailure) -> Int32 {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let streams {
            posix_spawn_file_actions_adddup2(&actions, streams.input, STDIN_FILENO)
            posix_spawn_file_actions_adddup2(&actions, streams.output, STDOUT_FILENO)
            posix_spawn_file_actions_adddup2(&actions, streams.errors, STDERR_FILENO)
        } else {
            posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        var flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
        if inOwnSession { flags |= ownSession }
        posix_spawnattr_setflags(&attributes, Int16(flags))
        var pid: pid_t = 0
        let result = withStrings(arguments) { arguments in
            withStrings(environment) { posix_spawn(&pid, program, &actions, &attributes, arguments, $0) }
        }
        guard result == 0 else {
            throw KernelFailure(operation: "run", subject: program, errno: result)
        }
        return pid
    }

    /// Starts a command, found through PATH, with our own standard streams, terminal and signals, except that SIGPIPE
    /// is not ignored, and with the environment that we were started with.
    ///
    /// - Returns: its process ID. It is our child, and we must wait for it.
    public static func run(_ command: [String]) throws(KernelFailure) -> Int32 {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))
        var pid: pid_t = 0
        let environment = Environment.variables(of: "self").map { "\($0.name)=\($0.value)" }
        let result = withStrings(command) { arguments in
            withStrings(environment) { posix_spawnp(&pid, command[0], nil, &attributes, arguments, $0) }
        }
        guard result == 0 else {
            throw KernelFailure(operation: "run", subject: command[0], errno: result)
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

extension Environment {
    /// The variables that a process was started with (proc_pid_environ(5)); none if they may not be read.
    ///
    /// - Parameter process: the name of its directory in `/proc`: a process id, or `self`.
    public static func variables(of process: String) -> [(name: String, value: String)] {
        let whole = (try? WholeFile.read("/proc/\(process)/environ")) ?? []
        return whole.split(separator: 0).compactMap { bytes in
            guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else { return nil }
            return (
                String(decoding: bytes[..<equals], as: UTF8.self),
                String(decoding: bytes[(equals + 1)...], as: UTF8.self)
            )
        }
    }
}

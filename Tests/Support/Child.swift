import Foundation
public import Glibc

/// A program that a test runs. Its output is captured, and it is killed when this object is released.
public final class Child {
    /// A child could not be started, or did not do what the test waited for.
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    /// How a child ended.
    public enum Ending: Equatable, Sendable {
        case exited(Int32)
        case signalled(Int32)
    }

    public let pid: Int32
    /// What it has written to standard output, as far as that has been read.
    public private(set) var output = ""
    /// What it has written to standard error, as far as that has been read.
    public private(set) var errors = ""
    private let program: String
    private let leadsGroup: Bool
    private var ending: Ending?
    private let reader: ChildOutput
    /// It may write more.
    private var isOpen = true

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - program: its path, or a name to look up in PATH.
    ///   - arguments: without the program's name.
    ///   - environment: added to this process's own; `nil` removes a variable.
    ///   - uid: another user to run as, through setpriv(1), with a group of the same number; needs root. It runs as
    ///     that user when this returns.
    ///   - descriptors: further descriptors that it inherits, by their numbers in the child.
    ///   - leadsGroup: it leads a process group of its own, so that what it has started can be killed with it.
    /// - Throws: `Failure` if it cannot be started.
    public init(
        _ program: String, _ arguments: [String] = [], environment: [String: String?] = [:],
        uid: UInt32? = nil, descriptors: [Int32: Int32] = [:], leadsGroup: Bool = false
    ) throws {
        var command = [program] + arguments
        let firstFree = (descriptors.keys.max() ?? 0).advanced(by: 1)
        let mark = max(firstFree, STDERR_FILENO + 1)
        if let uid {
            command =
                ["setpriv", "--reuid=\(uid)", "--regid=\(uid)", "--clear-groups", "--"]
                + ["sh", "-c", "exec \(mark)>&-; exec \"$0\" \"$@\""] + command
        }
        var variables: [String: String?] = ProcessInfo.processInfo.environment
        variables.merge(environment) { $1 }
        let output = try PipeEnds()
        let errors = try PipeEnds()
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, output.write, STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, errors.write, STDERR_FILENO)
        // The copies have higher numbers than the targets, so that no descriptor is overwritten before it is moved.
        let copies = descriptors.mapValues { fcntl($0, F_DUPFD_CLOEXEC, 64) }
        defer { for copy in copies.values where copy >= 0 { close(copy) } }
        for (number, copy) in copies { posix_spawn_file_actions_adddup2(&actions, copy, number) }
        let become = try uid.map { _ in try PipeEnds() }
        if let become { posix_spawn_file_actions_adddup2(&actions, become.write, mark) }
        // The program must not inherit files that other code in this process has opened without O_CLOEXEC.
        try Self.addClose(from: become == nil ? mark : mark + 1, to: &actions)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // A test may have blocked or ignored signals that the program needs.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        setDefaultSignals(&attributes)
        let group = leadsGroup ? POSIX_SPAWN_SETPGROUP : 0
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group))
        var pid: pid_t = 0
        let name = command[0]
        let list = variables.compactMap { name, value in value.map { "\(name)=\($0)" } }
        let result = withStrings(command) { command in
            withStrings(list) { list in
                PipeEnds.spawning.withLock { posix_spawnp(&pid, name, &actions, &attributes, command, list) }
            }
        }
        guard result == 0 else {
            throw Failure(description: "cannot start \(program): \(String(cString: strerror(result)))")
        }
        if let become { Self.waitForEnd(of: become) }
        self.program = program
        self.leadsGroup = leadsGroup
        self.pid = pid
        reader = try ChildOutput(of: pid, [output.takeRead(), errors.takeRead()])
    }

    /// Waits until the child has closed its copy of the write end.
    private static func waitForEnd(of pipe: PipeEnds) {
        close(pipe.takeWrite())
        var byte: UInt8 = 0
        while Glibc.read(pipe.read, &byte, 1) < 0, errno == EINTR {}
    }

    /// posix_spawn_file_actions_addclosefrom_np(3), which the module map lacks.
    private static func addClose(
        from number: Int32, to actions: inout posix_spawn_file_actions_t
    ) throws {
        typealias Add = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
        let name = "posix_spawn_file_actions_addclosefrom_np"
        guard let add = dlsym(nil, name).map({ unsafeBitCast($0, to: Add.self) }) else {
            throw Failure(description: "there is no \(name)")
        }
        _ = add(&actions, number)
    }

    deinit {
        if ending == nil {
            Glibc.kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
        }
        reader.stop()
    }

    /// Sends it a signal. Does nothing if it has ended and was waited for.
    public func kill(_ signal: Int32) {
        if ending == nil {
            Glibc.kill(pid, signal)
        }
    }

    /// Sends a signal that ends the child, and waits as `waitOrKill` does.
    public func end(_ signal: Int32 = SIGTERM, patience: Int = 10_000) throws {
        kill(signal)
        try waitOrKill(patience: patience)
    }

    /// Waits until it has ended and all its output is read, and kills it with its process group if that takes too long.
    /// A foreign program may hang while it ends. So may one that it has started, which then keeps its output open:
    /// an Xwayland that was stopped outlived its compositor.
    ///
    /// - Parameter patience: milliseconds until it is killed.
    public func waitOrKill(patience: Int = 10_000) throws {
        if (try? waitForExit(timeout: patience)) != nil { return }
        kill(SIGKILL)
        if leadsGroup { Glibc.kill(-pid, SIGKILL) }
        try waitForExit()
    }

    /// Waits until it has ended and all its output is read.
    ///
    /// - Parameter timeout: the milliseconds for both.
    /// - Throws: `Failure` after the timeout.
    @discardableResult
    public func waitForExit(timeout: Int = 300_000) throws -> Ending {
        try pump(until: { self.ending != nil && !self.isOpen }, timeout, "end")
        guard let ending else { throw Failure(description: "\(program) has not ended") }
        return ending
    }

    /// Waits for a line on standard output or standard error.
    ///
    /// - Parameters:
    ///   - text: what the line must contain.
    ///   - timeout: in milliseconds.
    /// - Returns: the line.
    /// - Throws: `Failure` after the timeout, or if the program ends before.
    @discardableResult
    public func waitForLine(containing text: String, timeout: Int = 300_000) throws -> String {
        var line: String?
        try pump(
            until: {
                line =
                    Self.line(containing: text, in: self.output)
                    ?? Self.line(containing: text, in: self.errors)
                return line != nil || !self.isOpen
            }, timeout, "say \"\(text)\"")
        guard let line else { throw failure("ended before it said \"\(text)\"") }
        return line
    }

    /// The descriptors that become readable when `advance()` has something to do, for a test that runs its own loop
    /// beside the child.
    public var descriptors: [Int32] { isOpen || ending == nil ? [reader.descriptor] : [] }

    /// Reads the output that is there, without waiting.
    ///
    /// - Returns: how the child ended; nil until it has ended and all its output is read.
    public func advance() -> Ending? {
        _ = step(milliseconds: 0)
        return isOpen ? nil : ending
    }

    private static func line(containing text: String, in output: String) -> String? {
        let lines = output.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
        return lines.first { $0.contains(text) }.map(String.init)
    }

    private func pump(until done: () -> Bool, _ timeout: Int, _ aim: String) throws {
        let deadline = ContinuousClock.now + .milliseconds(timeout)
        while !done() {
            let left = ContinuousClock.now.duration(to: deadline)
            let milliseconds =
                left.components.seconds * 1000 + left.components.attoseconds / 1_000_000_000_000_000
            guard milliseconds > 0 else { throw failure("did not \(aim) in \(timeout) ms") }
            guard step(milliseconds: Int32(milliseconds) + 1) else {
                throw failure("poll: \(String(cString: strerror(errno)))")
            }
        }
    }

    private func step(milliseconds: Int32) -> Bool {
        var news = pollfd(fd: reader.descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&news, 1, milliseconds) >= 0 else { return errno == EINTR }
        let taken = reader.take()
        output += taken.output
        errors += taken.errors
        isOpen = taken.isOpen
        if taken.hasExited, ending == nil { reap() }
        return true
    }

    private func reap() {
        var status: Int32 = 0
        guard waitpid(pid, &status, 0) == pid else { return }
        let signal = status & 0x7f
        ending = signal == 0 ? .exited((status >> 8) & 0xff) : .signalled(signal)
    }

    private func failure(_ what: String) -> Failure {
        Failure(
            description: "\(program) (\(pid)) \(what)\n--- process\n\(standing)"
                + "--- output\n\(output)--- errors\n\(errors)")
    }

    /// What the process does, or what it waits for (proc(5)).
    private var standing: String {
        ["stat", "wchan", "syscall", "cgroup", "stack"].map { name in
            let text = try? String(contentsOfFile: "/proc/\(pid)/\(name)", encoding: .utf8)
            return "\(name): \(text?.trimmingCharacters(in: .newlines) ?? "unknown")\n"
        }.joined()
    }
}

/// Passes an array of C strings, terminated by a null pointer, to `body`.
private func withStrings<Result>(
    _ strings: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
) -> Result {
    let copies = strings.map { strdup($0) } + [nil]
    defer {
        for copy in copies {
            free(copy)
        }
    }
    return body(copies)
}

/// Makes a program that is started with POSIX_SPAWN_SETSIGDEF begin with the default action of each signal. The program
/// that started the tests may ignore some signals, as nohup(1) does.
public func setDefaultSignals(_ attributes: inout posix_spawnattr_t) {
    var signals = sigset_t()
    sigfillset(&signals)
    sigdelset(&signals, SIGKILL)
    sigdelset(&signals, SIGSTOP)
    posix_spawnattr_setsigdefault(&attributes, &signals)
}

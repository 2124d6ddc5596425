import Glibc
import Linux

/// A process that waits at a gate and then becomes the program that it was started for. Its PID stays the same.
///
/// It is our own program in a mode that the help text does not mention:
/// `--gate SOCKET [--directory DIRECTORY] -- PROGRAM ARGUMENTS…`. The arguments begin with the program's `argv[0]`.
public enum GateProgram {
    /// The first argument of the mode.
    public static let option = "--gate"
    private static let directoryOption = "--directory"

    /// The arguments, without our own name, that make our program wait and then run another program.
    ///
    /// - Parameters:
    ///   - gate: the address of the gate.
    ///   - directory: the directory to change to first; nil: none.
    static func arguments(gate: String, _ command: ProgramCommand, directory: String?) -> [String] {
        [option, gate] + (directory.map { [directoryOption, $0] } ?? [])
            + ["--", command.program] + command.arguments
    }

    /// Waits, and becomes the program or ends. The exit status is 0 if the process may not go on, because that is no
    /// failure; 127 if the program cannot be run, as in a shell; 2 if it was called wrongly; and 1 if there is no gate.
    ///
    /// Call this before anything else: it closes all open files except standard input, output and error.
    ///
    /// - Parameter arguments: the arguments after `--gate`.
    public static func run(_ arguments: some Sequence<String>) -> Never {
        guard let order = Order(Array(arguments)[...]) else {
            end(2, "appstate-session: --gate is only for use by appstate-session itself")
        }
        Descriptor.closeAll(from: STDERR_FILENO + 1)
        // The process that started us may have blocked or ignored signals, and programs inherit that.
        var none = sigset_t()
        sigemptyset(&none)
        sigprocmask(SIG_SETMASK, &none, nil)
        for number in 1...64 as ClosedRange<Int32> { signal(number, SIG_DFL) }
        let gate: Int32
        do throws(KernelFailure) {
            gate = try GateSocket.open(order.gate, "connect to the gate", Glibc.connect).release()
        } catch {
            end(1, "appstate-session: \(error)")
        }
        guard let peer = SocketPeer(of: gate), peer.pid != nil, peer.uid == getuid() else {
            end(1, "appstate-session: the gate \(order.gate) belongs to another user")
        }
        guard mayProceed(gate) else { exit(0) }
        let failure = becomeProgram(order)
        // The owner of the gate gets the error number. On success the socket is closed by exec, and the owner takes the
        // end of the connection as success.
        withUnsafeBytes(of: failure.errno) { _ = write(gate, $0.baseAddress, $0.count) }
        end(127, "appstate-session: \(failure)")
    }

    private struct Order {
        let gate: String
        var directory: String?
        let program: String
        let arguments: [String]

        init?(_ words: ArraySlice<String>) {
            var words = words
            guard let gate = words.popFirst() else { return nil }
            self.gate = gate
            if words.first == directoryOption {
                words.removeFirst()
                directory = words.popFirst()
            }
            guard words.popFirst() == "--", let program = words.popFirst(), !words.isEmpty else { return nil }
            self.program = program
            arguments = Array(words)
        }
    }

    private static func mayProceed(_ gate: Int32) -> Bool {
        var word: UInt8 = 0
        while true {
            let count = read(gate, &word, 1)
            if count < 0, errno == EINTR { continue }
            return count == 1 && word == GateSocket.proceed
        }
    }

    private static func becomeProgram(_ order: Order) -> KernelFailure {
        if let directory = order.directory, chdir(directory) != 0 {
            return KernelFailure(operation: "chdir", subject: directory, errno: errno)
        }
        // Programs that use GLib compare this number with their own PID, to tell whether the variable is meant for them
        // or for the process that started them.
        if Environment["GIO_LAUNCHED_DESKTOP_FILE"] != nil {
            setenv("GIO_LAUNCHED_DESKTOP_FILE_PID", "\(getpid())", 1)
        }
        var arguments = order.arguments.map { strdup($0) } + [nil]
        // A script without `#!` is given to the shell.
        execvp(order.program, &arguments)
        return KernelFailure(operation: "run", subject: order.program, errno: errno)
    }

    private static func end(_ status: Int32, _ sentence: String) -> Never {
        let line = Array((sentence + "\n").utf8)
        _ = write(STDERR_FILENO, line, line.count)
        exit(status)
    }
}

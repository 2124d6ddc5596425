import AppStateBus
import Glibc
import Linux

/// A gate at which a process that we have started waits until it may run its program: `GateProgram`.
///
/// The process connects to our socket and reads. A byte means that it may go on. If the connection ends, because the
/// launch is cancelled or we have ended, the process ends too.
final class Gate {
    /// The path of the socket.
    let path: String
    private let listener: Int32
    private var source: Source?

    /// - Parameters:
    ///   - directory: a directory that only the user can access, `XDG_RUNTIME_DIR`; nil: there is none.
    ///   - arrived: gets the connection of a process of this user that waits, which it must close, and the PID.
    init(
        in directory: String?, loop: EventLoop, arrived: @escaping (_ connection: Int32, _ pid: Int32) -> Void
    ) throws {
        path = "\(directory ?? "/tmp")/appstate-gate-\(String(UInt64.random(in: .min ... .max), radix: 36))"
        let socket = try Self.open(path, "bind the gate", Glibc.bind)
        guard listen(socket.rawValue, 1) == 0 else {
            throw KernelFailure(operation: "listen", subject: path, errno: errno)
        }
        let listener = socket.release()
        self.listener = listener
        source = try loop.watch(listener) { _ in
            let number = accept(listener, nil, nil)
            guard number >= 0 else { return }
            _ = fcntl(number, F_SETFD, FD_CLOEXEC)
            if let peer = SocketPeer(of: number), let pid = peer.pid, peer.uid == geteuid() {
                arrived(number, pid)
            } else {
                close(number)
            }
        }
    }

    deinit {
        source?.cancel()
        close(listener)
        unlink(path)
    }

    /// Creates a local socket (unix(7)), and binds or connects it.
    fileprivate static func open(
        _ path: String, _ operation: String, _ call: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) throws(KernelFailure) -> Descriptor {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard path.utf8.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw KernelFailure(operation: operation, subject: path, errno: ENAMETOOLONG)
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw KernelFailure(operation: "socket", subject: path, errno: errno) }
        let descriptor = Descriptor(owning: number)
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                call(number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw KernelFailure(operation: operation, subject: path, errno: errno) }
        return descriptor
    }
}

/// A process that waits at a gate and then becomes the program that it was started for. Its PID stays the same.
///
/// It is our own program in a mode that the help text does not mention: `--gate SOCKET DIRECTORY PROGRAM ARGUMENTS…`.
/// DIRECTORY is the one to change to first, or empty. The arguments begin with the program's `argv[0]`.
public enum GateProgram {
    /// The first argument of the mode.
    public static let option = "--gate"

    /// How long it waits, in milliseconds. The daemon waits for a launch for 30 s.
    private static let patience: Int32 = 30_000

    /// Waits, and becomes the program or ends. The exit status is 0 if the process may not go on, because that is no
    /// failure; 127 if the program cannot be run, as in a shell; 2 if it was called wrongly; and 1 if there is no gate.
    ///
    /// Call this before anything else: it closes all open files except standard input, output and error.
    ///
    /// - Parameter words: the arguments after `--gate`.
    public static func run(_ words: [String]) -> Never {
        guard words.count > 3 else { end(2, "--gate is only for use by appstate-session itself") }
        Descriptor.closeAll(from: STDERR_FILENO + 1)
        let gate: Int32
        do throws(KernelFailure) {
            gate = try Gate.open(words[0], "connect to the gate", Glibc.connect).release()
        } catch {
            end(1, "\(error)")
        }
        var permission = pollfd(fd: gate, events: Int16(POLLIN), revents: 0)
        var byte: UInt8 = 0
        guard poll(&permission, 1, patience) == 1, read(gate, &byte, 1) == 1 else { exit(0) }
        let failure = becomeProgram(words[1], words[2], Array(words[3...]))
        // The owner of the gate gets the error number. On success the socket is closed by exec, and the owner takes the
        // end of the connection as success.
        withUnsafeBytes(of: failure.errno) { _ = write(gate, $0.baseAddress, $0.count) }
        end(127, "\(failure)")
    }

    private static func becomeProgram(
        _ directory: String, _ program: String, _ arguments: [String]
    ) -> KernelFailure {
        if !directory.isEmpty, chdir(directory) != 0 {
            return KernelFailure(operation: "chdir", subject: directory, errno: errno)
        }
        // Programs that use GLib compare this number with their own PID, to tell whether the variable is meant for them
        // or for the process that started them.
        if Environment["GIO_LAUNCHED_DESKTOP_FILE"] != nil {
            setenv("GIO_LAUNCHED_DESKTOP_FILE_PID", "\(getpid())", 1)
        }
        var arguments = arguments.map { strdup($0) } + [nil]
        // A script without `#!` is given to the shell.
        execvp(program, &arguments)
        return KernelFailure(operation: "run", subject: program, errno: errno)
    }

    private static func end(_ status: Int32, _ sentence: String) -> Never {
        let line = Array("appstate-session: \(sentence)\n".utf8)
        _ = write(STDERR_FILENO, line, line.count)
        exit(status)
    }
}

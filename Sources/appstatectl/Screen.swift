import Glibc
import Linux

/// The terminal as a screen that is drawn again and again and that reports keys one by one. However the program ends,
/// short of SIGKILL, the terminal is as it was.
enum Screen {
    /// Fails if standard input and output are not a terminal that can do this.
    static func check() throws {
        guard Terminal.isTerminal, tcgetattr(STDIN_FILENO, &before) == 0 else {
            throw Failure("top needs a terminal as its standard input and output; list and monitor do not")
        }
        guard Environment["TERM"] != "dumb" else {
            throw Failure("top needs a terminal with a cursor that moves, and TERM is dumb")
        }
    }

    static func begin() {
        enterScreen()
        // These must also work while a call waits for its answer.
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] { signal(number) { _ in endProgram() } }
        signal(SIGTSTP) { _ in stopProgram() }
    }

    static func end() { leaveScreen() }

    /// Columns and rows.
    static var size: (width: Int, height: Int) {
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (80, 24)
        }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    /// Replaces what the screen shows.
    ///
    /// - Parameter lines: as many as the screen has rows.
    static func draw(_ lines: [Line]) {
        // Each row is cleared before it is written: at the right edge, the cursor stays on the last character.
        Terminal.emit(raw: "\u{1B}[H" + lines.map { "\u{1B}[K" + $0.text }.joined(separator: "\r\n"), end: "")
    }

    enum Key: Equatable {
        case up, down, pageUp, pageDown, first, last
        case letter(Character)
    }

    /// The keys that have arrived; nil: the terminal is gone.
    ///
    /// - Parameter rest: the beginning of a key whose other bytes have not arrived.
    static func keys(after rest: inout [UInt8]) -> [Key]? {
        var buffer = [UInt8](repeating: 0, count: 256)
        let count = read(STDIN_FILENO, &buffer, buffer.count)
        if count < 0, errno == EINTR || errno == EAGAIN { return [] }
        guard count > 0 else { return nil }
        rest += buffer.prefix(count)
        return keys(in: &rest)
    }

    static func keys(in bytes: inout [UInt8]) -> [Key] {
        let names: [(String, Key)] = [
            ("[A", .up), ("OA", .up), ("[B", .down), ("OB", .down), ("[5~", .pageUp), ("[6~", .pageDown),
            ("[H", .first), ("OH", .first), ("[1~", .first), ("[F", .last), ("OF", .last), ("[4~", .last),
        ]
        var keys: [Key] = []
        while let byte = bytes.first {
            guard byte == 0x1B else {
                bytes.removeFirst()
                if (0x20..<0x7F).contains(byte) { keys.append(.letter(Character(Unicode.Scalar(byte)))) }
                continue
            }
            let tail = bytes.dropFirst()
            if let (name, key) = names.first(where: { tail.starts(with: $0.0.utf8) }) {
                bytes.removeFirst(1 + name.utf8.count)
                keys.append(key)
            } else if names.contains(where: { $0.0.utf8.starts(with: tail) }) {
                break
            } else {
                bytes.removeFirst()
            }
        }
        return keys
    }
}

/// How the terminal was. A signal handler needs it, so it is a global that is never allocated.
nonisolated(unsafe) private var before = termios()

// What follows is called in signal handlers, and may call only what signal-safety(7) lists.

private func put(_ text: StaticString) { _ = write(STDOUT_FILENO, text.utf8Start, text.utf8CodeUnitCount) }

private func enterScreen() {
    var raw = before
    raw.c_lflag &= ~tcflag_t(ICANON | ECHO)
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw)
    // The other screen; no cursor; a line that is too long is cut.
    put("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l")
}

private func leaveScreen() {
    put("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l")
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before)
}

private func endProgram() {
    leaveScreen()
    _exit(0)
}

/// Ctrl-Z. Returns when the shell continues the program.
private func stopProgram() {
    leaveScreen()
    signal(SIGTSTP, SIG_DFL)
    var stops = sigset_t()
    sigemptyset(&stops)
    sigaddset(&stops, SIGTSTP)
    raise(SIGTSTP)
    sigprocmask(SIG_UNBLOCK, &stops, nil)
    signal(SIGTSTP) { _ in stopProgram() }
    enterScreen()
    raise(SIGWINCH)
}

import Glibc
import Linux

/// The properties of standard output, and the only way to write to it.
enum Terminal {
    static let isTerminal = isatty(STDOUT_FILENO) == 1

    /// Colours are used only on a terminal, and not if NO_COLOR is set (no-color.org).
    static let hasColours =
        isTerminal && Environment["NO_COLOR"] == nil && Environment["TERM"] != "dumb"

    /// The columns of the terminal, or the value of COLUMNS. Nil if lines may have any length, as in a file.
    static let width: Int? = {
        guard isTerminal else { return nil }
        if let columns = Environment["COLUMNS"].flatMap({ Int($0) }), columns > 0 { return columns }
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }()

    /// The width of help texts. ArgumentParser takes it from COLUMNS, and crashes if that is less than the indentation
    /// of its help.
    static var helpWidth: Int { min(max(width ?? 80, 40), 200) }

    /// Must be called before anything else.
    static func prepare() {
        // A socket must not get the number of a closed standard stream. The replacement for standard output
        // is opened read-only, so that writing still fails.
        for (stream, mode) in [
            (STDIN_FILENO, O_RDONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_WRONLY),
        ] where fcntl(stream, F_GETFD) < 0 {
            _ = open("/dev/null", mode)
        }
        signal(SIGPIPE, SIG_IGN)
        setenv("COLUMNS", String(helpWidth), 1)
    }

    /// Writes a message to standard error.
    static func warn(_ sentence: String) {
        var bytes = Array((sentence.harmless + "\n").utf8)[...]
        _ = write(&bytes, to: STDERR_FILENO)
    }

    /// Writes one line for programs.
    static func emit(_ json: JSON) { emit(raw: json.text) }

    /// Writes text of this program that contains nothing from applications. It is written at once, because the reader
    /// of a pipe may wait for it.
    static func emit(raw text: String, end: String = "\n") {
        var bytes = Array((text + end).utf8)[...]
        switch write(&bytes, to: STDOUT_FILENO) {
        case nil: break
        case EPIPE:
            // The reader has gone, as after `| head`.
            exit(0)
        case let error?:
            warn("appstatectl: standard output cannot be written: \(String(cString: strerror(error)))")
            exit(Verdict.refused.rawValue)
        }
    }

    /// Writes all bytes, or returns the error number that prevented it.
    private static func write(_ bytes: inout ArraySlice<UInt8>, to descriptor: Int32) -> Int32? {
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                bytes = bytes.dropFirst(count)
                continue
            }
            switch errno {
            case EINTR: break
            case EAGAIN:
                var room = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&room, 1, -1)
            default: return errno
            }
        }
        return nil
    }
}

import Glibc

/// What standard output is, and the only way to write to it.
enum Terminal {
    static let isTerminal = isatty(STDOUT_FILENO) == 1

    /// Colours on a terminal only, and not where NO_COLOR is set (no-color.org).
    static let hasColours =
        isTerminal && getenv("NO_COLOR") == nil && getenv("TERM").map { String(cString: $0) } != "dumb"

    /// The terminal's columns, or what COLUMNS says of them; nil where lines may be of any length, as in a file.
    static let width: Int? = {
        guard isTerminal else { return nil }
        if let columns = getenv("COLUMNS").flatMap({ Int(String(cString: $0)) }), columns > 0 {
            return columns
        }
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }()

    /// Before anything else is done.
    static func prepare() {
        // No socket may get the number of a standard stream that is closed. What stands in for standard output
        // cannot be written, so that writing fails as it would have.
        for (stream, mode) in [
            (STDIN_FILENO, O_RDONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_WRONLY),
        ] where fcntl(stream, F_GETFD) < 0 {
            _ = open("/dev/null", mode)
        }
        signal(SIGPIPE, SIG_IGN)
        // ArgumentParser takes its width from there, and crashes below the indentation of its help.
        setenv("COLUMNS", String(min(max(width ?? 80, 40), 200)), 1)
    }

    /// A sentence to standard error.
    static func warn(_ sentence: String) {
        var bytes = Array((sentence.harmless + "\n").utf8)[...]
        _ = write(&bytes, to: STDERR_FILENO)
    }

    /// One line for people.
    static func emit(_ line: Line) { emit(raw: line.text) }

    /// One line for programs.
    static func emit(_ json: JSON) { emit(raw: json.text) }

    /// Text of this program's own, without a stranger's word in it; at once: a reader at the other end of a pipe
    /// waits for it.
    static func emit(raw text: String) {
        var bytes = Array((text + "\n").utf8)[...]
        switch write(&bytes, to: STDOUT_FILENO) {
        case nil: break
        case EPIPE:
            // Nobody reads any more, as after `| head`.
            exit(0)
        case let error?:
            warn("appstatectl: standard output cannot be written: \(String(cString: strerror(error)))")
            exit(Verdict.refused.rawValue)
        }
    }

    /// Writes all of it, or gives the error number that kept it from that.
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

import Glibc
import Linux

/// What appstatectl does on another machine. The commands are fixed texts: what a user chooses goes through standard
/// input, where no shell sees it.
enum RemoteCommand: String {
    case activity = "appstatectl activity --json"
    case `continue` = "appstatectl continue --json"

    /// A dead connection is noticed within 15 s. Nothing of the user's configuration for terminals, agents and ports is
    /// needed.
    private static let options = [
        "-T", "-a", "-x", "-o", "ClearAllForwardings=yes", "-o", "ConnectTimeout=15",
        "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
    ]

    /// Runs it.
    ///
    /// - Parameters:
    ///   - activity: what is sent, for sentences.
    ///   - input: its standard input, and then the file.
    /// - Returns: the last line that it has printed.
    func run(
        at host: String, about activity: Activity? = nil, input: [UInt8] = [], _ file: SentFile? = nil
    ) throws -> [UInt8] {
        guard let program = Self.ssh() else { throw Failure("ssh is not installed") }
        let words = ["ssh"] + Self.options + ["--", host, rawValue]
        let run = try RemoteRun(program, words)
        try run.finish(sending: input, file)
        guard run.status == .exited(0) else { throw failure(of: run, at: host, activity) }
        // Such as that the application there stays suspended.
        for warning in run.lines.compactMap(Self.own) { Terminal.warn("appstatectl: on \(host): \(warning)") }
        // The user's shell may print something of its own first.
        guard let line = run.output.split(separator: UInt8(ascii: "\n")).last, line.first == UInt8(ascii: "{")
        else { throw Self.noAnswer(from: host) }
        return Array(line)
    }

    private static func ssh() -> String? {
        let directories = (Environment["PATH"] ?? "/usr/bin:/bin").split(separator: ":")
        return directories.lazy.map { "\($0)/ssh" }.first { $0.hasPrefix("/") && access($0, X_OK) == 0 }
    }

    static func noAnswer(from host: String) -> Failure {
        Failure("appstatectl on \(host) has given no answer that can be read: it is another version", .tooOld)
    }

    // MARK: Failures

    private func failure(of run: RemoteRun, at host: String, _ activity: Activity?) -> Failure {
        let lines = run.lines
        switch run.status {
        case .exited(255): return Self.failure(ofConnection: lines, host, self)
        case .exited(126), .exited(127):
            return Failure("there is no appstatectl on \(host)", .tooOld)
        case .exited(Verdict.usage.rawValue), .exited(Verdict.tooOld.rawValue):
            return Failure("appstated on \(host) is older, and knows of no activities", .tooOld)
        case .exited(Verdict.noReceiver.rawValue)
        where activity != nil && !lines.contains(where: Self.isOther):
            return Failure(
                "no application on \(host) continues activities of the type \(activity?.type ?? "")",
                .noReceiver)
        case .exited(let status):
            return Failure(
                "on \(host): \(lines.compactMap(Self.own).last ?? "appstatectl has failed")",
                Verdict(rawValue: status) ?? .refused)
        case .signalled, .unknown: return Self.lost(host, "ssh was killed", self)
        }
    }

    /// What the command there says itself.
    private static func own(_ line: String) -> String? {
        line.hasPrefix("appstatectl: ") ? String(line.dropFirst("appstatectl: ".count)) : nil
    }

    /// There is such an application, but it continues nothing.
    private static func isOther(_ line: String) -> Bool { line.contains("it has no delegate") }

    /// What ssh says is always English.
    private static func failure(
        ofConnection lines: [String], _ host: String, _ command: RemoteCommand
    ) -> Failure {
        let said = lines.last ?? "ssh has failed"
        let refusals = [
            "Permission denied", "Host key verification failed", "Too many authentication failures",
            "No more authentication methods",
        ]
        if let why = lines.first(where: { line in refusals.contains { line.contains($0) } }) {
            return Failure("\(host) refuses the login: \(why)", .loginRefused)
        }
        // Only before there is a connection.
        if let why = lines.first(where: { $0.hasPrefix("ssh: ") }) {
            return Failure("\(host) cannot be reached: \(why.dropFirst("ssh: ".count))", .unreachable)
        }
        return lost(host, said, command)
    }

    private static func lost(_ host: String, _ why: String, _ command: RemoteCommand) -> Failure {
        let what =
            command == .continue
            ? "it may have arrived; repeat the command, which delivers it once" : "repeat the command"
        return Failure("the connection to \(host) was lost (\(why)): \(what)", .unreachable)
    }
}

/// A program that is given its input while its output is read.
private final class RemoteRun {
    private(set) var output: [UInt8] = []
    private var errors: [UInt8] = []
    private(set) var status = ExitStatus.unknown
    /// What it has written to standard error.
    var lines: [String] {
        String(decoding: errors, as: UTF8.self)
            .split(whereSeparator: { $0 == "\n" || $0 == "\r\n" || $0 == "\r" }).map(String.init)
    }
    private let pid: Int32
    private let process: PidFD
    /// Our ends of the pipes; -1: closed.
    private var input, fromOutput, fromErrors: Int32

    /// Its output is an activity or less; more is not kept.
    private static let mostOutput = 1 << 20

    init(_ program: String, _ arguments: [String]) throws {
        let (input, output, errors) = (try Self.pipe(), try Self.pipe(), try Self.pipe())
        defer { for theirs in [input.read, output.write, errors.write] { close(theirs) } }
        (self.input, fromOutput, fromErrors) = (input.write, output.read, errors.read)
        for ours in [input.write, output.read, errors.read] {
            _ = fcntl(ours, F_SETFL, fcntl(ours, F_GETFL) | O_NONBLOCK)
        }
        let environment = Environment.variables(of: "self").map { "\($0.name)=\($0.value)" }
        pid = try Spawn.run(
            program, arguments, environment: environment, inOwnSession: false,
            streams: Spawn.Streams(input: input.read, output: output.write, errors: errors.write))
        process = try PidFD(pid: pid)
    }

    deinit {
        for descriptor in [input, fromOutput, fromErrors] where descriptor >= 0 { close(descriptor) }
        guard status == .unknown else { return }
        // What it was to send cannot be read.
        kill(pid, SIGTERM)
        waitpid(pid, nil, 0)
    }

    private static func pipe() throws -> (read: Int32, write: Int32) {
        var ends: [Int32] = [-1, -1]
        guard Glibc.pipe(&ends) == 0 else {
            throw Failure("ssh cannot be started: \(String(cString: strerror(errno)))")
        }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    /// Sends everything, and returns when the program has ended. A program that it leaves in the background may keep
    /// the pipes open (ControlPersist of ssh_config(5)).
    func finish(sending bytes: [UInt8], _ file: SentFile?) throws {
        var rest = bytes[...]
        while true {
            var polled = [process.rawValue, fromOutput, fromErrors, input].map { descriptor in
                pollfd(fd: descriptor, events: Int16(descriptor == input ? POLLOUT : POLLIN), revents: 0)
            }
            if poll(&polled, nfds_t(polled.count), -1) < 0, errno != EINTR { break }
            let hasEnded = polled[0].revents != 0
            Self.take(&fromOutput, &output)
            Self.take(&fromErrors, &errors)
            if hasEnded { break }
            guard input >= 0, polled[3].revents != 0 else { continue }
            if rest.isEmpty { rest = try file?.read() ?? [] }
            let count = rest.withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
            if count > 0 { rest = rest.dropFirst(count) }
            // Everything is sent, or nobody reads it any more.
            let isOver = count == 0 || count < 0 && ![EAGAIN, EINTR].contains(errno)
            if isOver { Self.end(&input) }
        }
        var word: Int32 = 0
        while waitpid(pid, &word, 0) < 0, errno == EINTR {}
        status = ExitStatus(waitStatus: word)
    }

    /// Reads what there is.
    private static func take(_ descriptor: inout Int32, _ text: inout [UInt8]) {
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        while descriptor >= 0 {
            let count = read(descriptor, &buffer, buffer.count)
            if count > 0 {
                text += buffer.prefix(min(count, mostOutput - text.count))
            } else if count == 0 {
                end(&descriptor)
            } else if errno != EINTR {
                return
            }
        }
    }

    private static func end(_ descriptor: inout Int32) {
        close(descriptor)
        descriptor = -1
    }
}

/// A file to be sent.
final class SentFile {
    let description: Activity.File
    private let descriptor: Int32
    /// It may grow meanwhile.
    private var rest: UInt64

    init(_ path: String) throws {
        descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw Failure("\(path): \(String(cString: strerror(errno)))") }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
            let name = path.split(separator: "/").last.map(String.init)
        else {
            close(descriptor)
            throw Failure("\(path) is not a regular file")
        }
        rest = UInt64(status.st_size)
        description = Activity.File(name: name, size: rest)
    }

    deinit { close(descriptor) }

    /// The next bytes; none at the end.
    func read() throws -> ArraySlice<UInt8> {
        var buffer = [UInt8](repeating: 0, count: min(64 << 10, Int(clamping: rest)))
        if buffer.isEmpty { return [] }
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        guard count >= 0 else {
            throw Failure("\(description.name) cannot be read: \(String(cString: strerror(errno)))")
        }
        rest -= UInt64(count)
        return buffer[..<count]
    }
}

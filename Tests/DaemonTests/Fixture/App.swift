import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// A process of the program AppActor (Tests/Actor): an application with a connection of its own that carries out
/// commands. It ends when this object is released, together with the processes that it made.
final class App {
    let process: Child
    /// Our end of its standard input.
    private let input: Int32
    private var asked = 0
    private var descendants: [ProcessIdentity] = []

    /// Whether it was built beside the tests.
    static let isAvailable = TestDaemon.isAvailable && Programs.built("AppActor") != nil
    /// Whether another user can run it: its directories and Swift's library must be open to all.
    static let canBeOthers: Bool = {
        guard TestDaemon.canBeOthers, let program = Programs.built("AppActor"),
            let probe = try? Child(program, ["--version"], uid: nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()
    static let whatOthersNeed: Comment = "needs root, setpriv, and programs that another user can run"
    /// A user that every system has; dbus-daemon cuts off those without a passwd entry.
    static let nobody: UInt32 = getpwnam("nobody")?.pointee.pw_uid ?? 65_534

    var pid: Int32 { process.pid }

    /// Starts it and waits until it is on the bus.
    ///
    /// - Parameters:
    ///   - isSandboxed: in a PID namespace of its own; `pid` is then that of unshare(1), which made it.
    ///   - address: of a proxy that leads to the bus; nil: of the bus.
    init(
        _ bus: PrivateBus, uid: UInt32? = nil, isSandboxed: Bool = false, through address: String? = nil
    ) throws {
        var ends: [Int32] = [-1, -1]
        // A socket, so that writing to a process that has ended raises no SIGPIPE.
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0
        else { throw TestFailure("socketpair: \(String(cString: strerror(errno)))") }
        input = ends[0]
        defer { close(ends[1]) }
        var command = [Programs.built("AppActor") ?? "AppActor"]
        if isSandboxed {
            let user =
                uid.map { ["setpriv", "--reuid=\($0)", "--regid=\($0)", "--clear-groups", "--"] } ?? []
            command = ["unshare", "--pid", "--fork", "--kill-child", "--"] + user + command
        }
        // A crash must end it at once. Swift's runtime would look for the location first.
        var own = ["SWIFT_BACKTRACE": "enable=no"]
        own["DBUS_SYSTEM_BUS_ADDRESS"] = address
        process = try Child(
            command[0], Array(command.dropFirst()),
            environment: bus.environment.merging(own) { $1 },
            uid: isSandboxed ? nil : uid, descriptors: [STDIN_FILENO: ends[1]])
        try ask("name")
    }

    deinit {
        close(input)
        for descendant in descendants { signal(SIGKILL, to: descendant) }
    }

    /// Sends a command of those in Tests/Actor/Application.swift, and returns the words of the answer. A D-Bus error
    /// that the process got is thrown as `BusFailure`.
    @discardableResult
    func ask(_ command: String) throws -> String {
        asked += 1
        let line = Array("\(asked) \(command)\n".utf8)
        guard send(input, line, line.count, Int32(MSG_NOSIGNAL)) == line.count else {
            throw TestFailure("AppActor (\(pid)) takes no command\n\(process.errors)")
        }
        let mark = "#\(asked) "
        let answer = try process.waitForLine(containing: mark).dropFirst(mark.count)
        guard !answer.hasPrefix("error ") else {
            throw BusFailure(
                operation: "ask", subject: command, errno: EIO, name: String(answer.dropFirst(6)))
        }
        return String(answer.dropFirst(3))
    }

    /// Sends a command that is not answered before something else happens.
    func tell(_ command: String) {
        asked += 1
        let line = Array("\(asked) \(command)\n".utf8)
        _ = send(input, line, line.count, Int32(MSG_NOSIGNAL))
    }

    /// Calls a method and does not wait: `answer(to:)` has the answer later.
    func begin(_ words: String) throws -> Int {
        try ask("begin \(words)")
        return asked
    }

    /// The words of an answer: `ok …` or `error NAME`; nil: it has not come.
    func answer(to call: Int) -> String? {
        let head = "answer \(call) "
        return lines.first { $0.hasPrefix(head) }.map { String($0.dropFirst(head.count)) }
    }

    /// Registers itself; options as Tests/Actor/Argument.swift writes `a{sv}`, without the braces.
    func register(_ id: String = "org.example.Actor", _ options: String = "") throws -> String {
        try manager("Register s:\(id) u:0 {\(options)}")
    }

    @discardableResult
    func manager(_ words: String) throws -> String {
        try ask("call \(BusNames.root) \(BusNames.manager) \(words)")
    }

    @discardableResult
    func reporter(_ words: String) throws -> String {
        try ask("call \(BusNames.root) \(BusNames.reporter) \(words)")
    }

    @discardableResult
    func application(_ path: String, _ words: String) throws -> String {
        try ask("call \(path) \(BusNames.application) \(words)")
    }

    /// A property of its own application. Other processes read less of some.
    func property(_ path: String, _ name: String, is expected: Variant) throws -> Bool {
        try ask("property \(path) \(name)") == (expected.texts ?? []).joined(separator: " ")
    }

    /// Its own launch options; they need not be complete.
    func launchOptions(_ path: String, contain text: String) throws -> Bool {
        try ask("property \(path) LaunchOptions").contains(text)
    }

    /// Makes processes: `fork`, `double-fork` or `descend`. Returns the new process's PID.
    func make(_ how: String) throws -> Int32 {
        guard let pid = Int32(try ask(how)) else { throw TestFailure("\(how) answered no pid") }
        if let process = try? Proc().identity(of: pid) { descendants.append(process) }
        return pid
    }

    // MARK: What it was sent

    /// Everything that it has written so far, line by line.
    var lines: [String] {
        _ = process.advance()
        return process.output.split(separator: "\n").map(String.init)
    }

    /// The signals of one application that it was sent, in order, as `Client.story(of:)` writes them.
    func story(of path: String) -> [String] {
        lines.compactMap { line in
            let words = line.split(separator: " ").map(String.init)
            guard words.count > 3, words[0] == "signal", words[1] == path, words[2] == BusNames.application
            else { return nil }
            return words[3] == "StateChanged" && words.count > 5 ? "\(words[4])→\(words[5])" : words[3]
        }
    }

    /// The arguments of the last signal of this name that it was sent; waits for one.
    func last(_ member: String, of path: String) throws -> [String] {
        let head = "signal \(path) \(BusNames.application) \(member)"
        try process.waitForLine(containing: head)
        let line = lines.last { $0 == head || $0.hasPrefix(head + " ") } ?? ""
        return line.split(separator: " ").dropFirst(4).map(String.init)
    }

    /// After this, it has written everything that the daemon had sent it before.
    func settle() throws { try ask("settle") }
}

import AppStateContract
import Foundation
import Glibc
import TestSupport

/// A process of the program LibraryActor (Tests/LibraryActor): an application written with the library. It ends with
/// this object.
final class Player {
    let process: Child
    private let input: Int32
    private var answered = 0

    /// - Parameters:
    ///   - theatre: nil: there is no bus.
    ///   - arguments: as Tests/LibraryActor/Main.swift says.
    ///   - program: nil: LibraryActor as it is built.
    convenience init(
        _ theatre: Theatre?, _ arguments: [String] = [], environment: [String: String?] = [:],
        program: String? = nil
    ) throws {
        try self.init(bus: theatre?.bus, arguments, environment: environment, program: program)
    }

    init(
        bus: PrivateBus?, _ arguments: [String] = [], environment: [String: String?] = [:],
        program: String? = nil
    ) throws {
        var ends: [Int32] = [-1, -1]
        // A socket, so that writing to a program that has ended raises no SIGPIPE.
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0
        else { throw TestFailure("socketpair: \(String(cString: strerror(errno)))") }
        input = ends[0]
        defer { close(ends[1]) }
        var variables: [String: String?] = bus?.environment.mapValues { $0 } ?? [:]
        if bus == nil { variables["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=/nonexistent/bus" }
        variables["SWIFT_BACKTRACE"] = "enable=no"
        process = try Child(
            program ?? Programs.built("LibraryActor") ?? "LibraryActor", arguments,
            environment: variables.merging(environment) { $1 }, descriptors: [STDIN_FILENO: ends[1]])
    }

    deinit { close(input) }

    var pid: Int32 { process.pid }

    func tell(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = send(input, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }

    /// Gives it a command and returns its answer.
    @discardableResult
    func ask(_ line: String) throws -> String {
        tell(line)
        answered += 1
        try wait("the answer to \(line)") { self.answers.count >= self.answered }
        return answers[answered - 1]
    }

    // MARK: What it printed

    private var known: [String] = []
    private var knownBytes = 0
    private var answers: [String] = []
    /// Its callbacks so far: name, state and further words.
    private var told: [String] = []
    private var times: [String: Int] = [:]

    /// Reads only the new output: reading all of it again would take long after thousands of rounds.
    private func advance() -> Child.Ending? {
        let ending = process.advance()
        let output = process.output.utf8
        let new = output[output.index(output.startIndex, offsetBy: knownBytes)...]
        guard let end = new.lastIndex(of: UInt8(ascii: "\n")) else { return ending }
        knownBytes += new[...end].count
        for bytes in new[..<end].split(separator: UInt8(ascii: "\n")) {
            let line = String(bytes) ?? ""
            known.append(line)
            if line.hasPrefix("answer ") { answers.append(String(line.dropFirst(7))) }
            guard line.hasPrefix("told ") else { continue }
            told.append(String(line.dropFirst(5)))
            times[Self.name(of: line.dropFirst(5)), default: 0] += 1
        }
        return ending
    }

    private static func name(of story: some StringProtocol) -> String {
        String(story.prefix { $0 != " " })
    }

    /// Everything that it printed so far, line by line.
    var lines: [String] {
        _ = advance()
        return known
    }

    /// Its callbacks so far: name, state and further words.
    var story: [String] {
        _ = advance()
        return told
    }

    /// The names of its callbacks so far, without the continuation of `didEnterBackground`.
    var names: [String] { story.map(Self.name).filter { $0 != "doneInBackground" } }

    func wait(for name: String, times wanted: Int = 1) throws {
        try wait("\(name), \(wanted) times") { self.times[name, default: 0] >= wanted }
    }

    func wait(forLine text: String) throws { try process.waitForLine(containing: text) }

    private func wait(_ what: String, until done: () -> Bool) throws {
        let isDone = eventually {
            let hasEnded = advance() != nil
            return done() || hasEnded
        }
        guard isDone, done() else {
            throw TestFailure(
                "timed out, or the program ended, waiting for \(what)\n\(process.output)\n\(process.errors)")
        }
    }
}

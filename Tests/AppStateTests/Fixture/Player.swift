import AppStateContract
import Foundation
import Glibc
import TestSupport

/// A process of the program LibraryActor (Tests/LibraryActor): an application written with the library. It ends when it
/// is let go.
final class Player {
    let process: Child
    private let input: Int32
    private var answered = 0

    /// - Parameters:
    ///   - theatre: nil: there is no bus.
    ///   - arguments: as Tests/LibraryActor/Main.swift says.
    init(
        _ theatre: Theatre?, _ arguments: [String] = [], environment: [String: String?] = [:]
    ) throws {
        var ends: [Int32] = [-1, -1]
        // A socket, so that writing to one that has ended raises no SIGPIPE.
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0
        else { throw TestFailure("socketpair: \(String(cString: strerror(errno)))") }
        input = ends[0]
        defer { close(ends[1]) }
        var variables: [String: String?] = theatre?.bus.environment.mapValues { $0 } ?? [:]
        if theatre == nil { variables["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=/nonexistent/bus" }
        variables["SWIFT_BACKTRACE"] = "enable=no"
        process = try Child(
            Programs.built("LibraryActor") ?? "LibraryActor", arguments,
            environment: variables.merging(environment) { $1 }, descriptors: [STDIN_FILENO: ends[1]])
    }

    deinit { close(input) }

    var pid: Int32 { process.pid }

    func tell(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = send(input, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }

    /// Has it do something; gives its answer.
    @discardableResult
    func ask(_ line: String) throws -> String {
        tell(line)
        answered += 1
        try wait("the answer to \(line)") { self.lines.count { $0.hasPrefix("answer ") } >= self.answered }
        let answers = lines.filter { $0.hasPrefix("answer ") }
        return String(answers[answered - 1].dropFirst("answer ".count))
    }

    /// Everything it said so far, line by line.
    var lines: [String] {
        _ = process.advance()
        return process.output.split(separator: "\n").map(String.init)
    }

    /// Its callbacks so far: name and state, and what else was told.
    var story: [String] { lines.filter { $0.hasPrefix("told ") }.map { String($0.dropFirst(5)) } }

    /// The names of its callbacks so far, without the way `didEnterBackground` goes on.
    var names: [String] {
        story.compactMap { $0.split(separator: " ").first.map(String.init) }.filter { $0 != "doneInBackground" }
    }

    func wait(for name: String, times: Int = 1) throws {
        try wait("\(name), \(times) times") { self.names.count { $0 == name } >= times }
    }

    func wait(forLine text: String) throws { try process.waitForLine(containing: text) }

    private func wait(_ what: String, until done: () -> Bool) throws {
        let isDone = eventually {
            if done() { return true }
            return process.advance() != nil
        }
        guard isDone, done() else {
            throw TestFailure("\(what) did not come\n\(process.output)\n\(process.errors)")
        }
    }
}

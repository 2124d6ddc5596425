import Foundation
import Glibc
import TestSupport

/// A process of the program WindowActor (Tests/WindowActor) or WaylandActor (Tests/WaylandActor): an application with
/// windows. It ends when it is released.
final class WindowApp {
    let process: Child
    private let input: Int32
    private var asked = 0

    /// Starts it and waits until it is a client of the display.
    ///
    /// - Parameters:
    ///   - prefix: a command that starts it.
    ///   - program: nil: WindowActor.
    init(
        environment: [String: String?], prefix: [String] = [], uid: UInt32? = nil, program: String? = nil
    ) throws {
        var ends: [Int32] = [-1, -1]
        // A socket, so that writing to a process that has ended raises no SIGPIPE.
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0
        else { throw TestFailure("socketpair: \(String(cString: strerror(errno)))") }
        input = ends[0]
        defer { close(ends[1]) }
        let command = prefix + [program ?? Programs.built("WindowActor") ?? "WindowActor"]
        process = try Child(
            command[0], Array(command.dropFirst()), environment: environment, uid: uid,
            descriptors: [STDIN_FILENO: ends[1]])
        try process.waitForLine(containing: "ready")
    }

    deinit { close(input) }

    var pid: Int32 { process.pid }

    /// The process's child, where it was started through another program.
    func child() throws -> Int32 {
        let children = try String(contentsOfFile: "/proc/\(pid)/task/\(pid)/children", encoding: .utf8)
        guard let child = children.split(separator: " ").first.flatMap({ Int32($0) }) else {
            throw TestFailure("process \(pid) has no child")
        }
        return child
    }

    /// Makes it execute a command that its Main.swift lists; returns the words of its answer.
    @discardableResult
    func ask(_ command: String) throws -> String {
        asked += 1
        let line = Array("\(asked) \(command)\n".utf8)
        guard send(input, line, line.count, Int32(MSG_NOSIGNAL)) == line.count else {
            throw TestFailure("the actor (\(pid)) accepts no command\n\(process.errors)")
        }
        let mark = "#\(asked) "
        let answer = try process.waitForLine(containing: mark).dropFirst(mark.count)
        guard answer.hasPrefix("ok") else { throw TestFailure("\(command): \(answer)") }
        return String(answer.dropFirst(3))
    }

    /// Opens a window; returns its number.
    func open(_ name: String, _ title: String = "") throws -> UInt32 {
        guard let window = UInt32(try ask("open \(name) \(title)")) else { throw TestFailure("no window") }
        return window
    }
}

import Foundation
import Glibc
import TestSupport
import Testing

/// The commands of appstatectl in the README and in docs/, in blocks and in sentences. What they do is the matter of
/// other tests; here each is run where no bus is, and must be one that there is, with arguments that it takes.
@Suite(
    "Commands in documents",
    .enabled(if: Programs.built("appstatectl") != nil, "needs appstatectl built beside the tests"))
struct DocumentTests {
    private struct Command: CustomStringConvertible {
        let file: String
        let text: String

        var description: String { "\(file): \(text)" }
    }

    private static func documents() throws -> [String] {
        let directory = Programs.root + "/docs"
        let names = try FileManager.default.contentsOfDirectory(atPath: directory)
        return [Programs.root + "/README.md"]
            + names.filter { $0.hasSuffix(".md") }.sorted().map { "\(directory)/\($0)" }
    }

    private static func commands() throws -> [Command] {
        var found: [Command] = []
        for path in try documents() {
            let text = try String(contentsOfFile: path, encoding: .utf8)
            for (number, part) in text.components(separatedBy: "```").enumerated() {
                // Every second part is a block.
                let candidates =
                    number % 2 == 1
                    ? part.components(separatedBy: "\n")
                    : part.replacingOccurrences(of: "\n", with: " ").components(separatedBy: "`")
                        .enumerated().filter { $0.offset % 2 == 1 }.map(\.element)
                for candidate in candidates where candidate.hasPrefix("appstatectl ") {
                    // These stand for something.
                    if candidate.contains("…") || candidate.contains("[") { continue }
                    found.append(Command(file: path, text: candidate))
                }
            }
        }
        return found
    }

    @Test("each is understood, and each rule is accepted")
    func understood() throws {
        let tool = try #require(Programs.built("appstatectl"))
        let directory = URL(fileURLWithPath: tool).deletingLastPathComponent().path
        let scratch = try Scratch("documents")
        defer { withExtendedLifetime(scratch) {} }
        let home = scratch.path
        let nowhere = "unix:path=\(home)/none"
        let commands = try Self.commands()
        #expect(commands.count > 30)
        for command in commands {
            // No other program is found, ssh neither.
            let script = "PATH='\(directory)'; pid=1; \(command.text)"
            let shell = try Child(
                "bash", ["-c", script],
                environment: [
                    "HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home,
                    "DBUS_SYSTEM_BUS_ADDRESS": nowhere, "DBUS_SESSION_BUS_ADDRESS": nowhere,
                ])
            let end = try shell.waitForExit()
            #expect(end != .exited(64) && end != .exited(127), "\(command): \(shell.errors)")
            if command.text.contains("=") {
                #expect(end == .exited(0), "\(command): \(shell.errors)")
            }
        }
    }
}

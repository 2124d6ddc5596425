import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The commands of docs/by-hand.md, as a user pastes them into a shell, and the daemon's configuration in docs/.
@Suite(
    "By hand", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Programs.inPath("busctl") != nil, "needs busctl"))
struct ByHandTests {
    /// The shell commands in a section, with a separator line after each block.
    private static func commands(of section: String, without unwanted: String? = nil) throws -> String {
        let text = try String(contentsOfFile: Programs.root + "/docs/by-hand.md", encoding: .utf8)
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        let begin = try #require(lines.firstIndex(of: "## \(section)"))
        var commands: [Substring] = []
        var isCode = false
        for line in lines[(begin + 1)...] {
            if line.hasPrefix("## ") { break }
            if line.hasPrefix("```") {
                if isCode { commands.append("echo ---") }
                isCode = line == "```sh"
            } else if isCode, unwanted.map({ !line.contains($0) }) ?? true {
                commands.append(line)
            }
        }
        #expect(!isCode && commands.count > 1)
        return commands.joined(separator: "\n")
    }

    private static func run(_ commands: String, on daemon: TestDaemon) throws -> Child {
        let tool = try #require(Programs.built("appstatectl"))
        let directory = URL(fileURLWithPath: tool).deletingLastPathComponent().path
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        let shell = try Child(
            "bash", ["-euo", "pipefail", "-c", commands],
            environment: daemon.bus.environment.merging(["PATH": "\(directory):\(path)"]) { $1 })
        #expect(try shell.waitForExit() == .exited(0), "\(shell.errors)")
        return shell
    }

    @Test("the commands of busctl lead through the states that the page names")
    func byHand() throws {
        let daemon = try TestDaemon(keeps: true)
        // A second is enough for a user, but not always on a busy machine.
        let commands = try [("STOP", "suspended"), ("CONT", "inactive")].reduce(
            Self.commands(of: "With busctl")
        ) { commands, step in
            commands.replacingOccurrences(
                of: "kill -\(step.0) $pid; sleep 1",
                with: "kill -\(step.0) $pid; until state | grep -q \(step.1); do sleep 0.1; done")
        }
        let shell = try Self.run(commands, on: daemon)
        let blocks = shell.output.components(separatedBy: "---\n").map { block in
            block.split(separator: "\n").filter { $0.hasPrefix("s \"") }.map { $0.dropFirst(3).dropLast() }
        }
        #expect(
            Array(blocks.prefix(4)) == [
                ["background"], ["active", "background", "inactive"], ["suspended", "inactive"],
                ["suspended", "inactive"],
            ])
        #expect(shell.output.contains("\"signal\" \"pid "))
        #expect(shell.output.contains("\"has a visible window\""))
        #expect(shell.output.contains("\"suspend-holds\"") || shell.output.contains("\"holds\""))
    }

    @Test("the configuration that the documents show is accepted")
    func configuration() throws {
        let directory = Programs.root + "/docs"
        var blocks: [String] = []
        for name in try FileManager.default.contentsOfDirectory(atPath: directory).filter({
            $0.hasSuffix(".md")
        }) {
            let text = try String(contentsOfFile: "\(directory)/\(name)", encoding: .utf8)
            blocks += text.components(separatedBy: "```").enumerated().filter { $0.offset % 2 == 1 }.map(
                \.element)
        }
        // Not what is for other programs, and for the session agent.
        let others = ["[Session]", "[Desktop Entry]", "[org/gnome/shell]", "[preferred]"]
        let shown = blocks.filter { block in
            block.hasPrefix("ini\n") && !others.contains { block.contains($0) }
        }
        #expect(shown.count >= 3)
        let daemon = try TestDaemon(configuration: shown.map { $0.dropFirst("ini\n".count) }.joined())
        let refused = try daemon.client().property(BusNames.root, BusNames.manager, "RefusedLines")
        #expect(refused == .uint32(0))
    }

    @Test("the commands of appstatectl work")
    func tool() throws {
        let daemon = try TestDaemon(keeps: true)
        let commands = try Self.commands(of: "With appstatectl", without: "monitor")
        let shell = try Self.run(commands, on: daemon)
        #expect(shell.output.contains("org.example.Sleeper"))
        let client = try daemon.client()
        try client.wait("the end of the application") { try client.list() == [] }
    }
}

import Foundation
import TestSupport
import Testing

/// The README's commands by which Firefox is suspended when it is minimized.
@Suite(
    "README, rules", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing),
    .enabled(if: Programs.built("appstatectl") != nil, "needs appstatectl built beside the tests"))
struct ReadmeRuleTests {
    /// The block of commands that begins with this text. What starts the agent is left out: here it runs already.
    private static func commands(from begin: String) throws -> [String] {
        let file = URL(fileURLWithPath: Programs.root).appendingPathComponent("README.md")
        let lines = try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n")
        let first = try #require(lines.firstIndex { $0.hasPrefix(begin) })
        return lines[first...].prefix { $0 != "```" }.filter { !$0.hasPrefix("systemctl") }
    }

    @Test("they have a Firefox that runs already suspended when it is minimized")
    func firefox() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let station = try Station(configuration: "BackgroundGraceSec=0\n")
        let own: [String: String?] = ["XDG_CONFIG_HOME": station.bus.directory + "/config"]
        let environment = display.environment.merging(own) { $1 }
        let tool = try #require(Programs.built("appstatectl"))
        let directory = URL(fileURLWithPath: tool).deletingLastPathComponent().path
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        func run(_ command: String) throws -> String {
            let shell = try Child(
                "bash", ["-euo", "pipefail", "-c", command],
                environment: station.bus.environment.merging(environment) { $1 }.merging([
                    "PATH": "\(directory):\(path)"
                ]) { $1 })
            #expect(try shell.waitForExit() == .exited(0), "\(shell.errors)")
            return shell.output
        }
        try station.startAgent(environment: environment)
        let app = try display.app()
        let window = try app.open("firefox-esr")
        let commands = try Self.commands(from: "appstatectl rule 'firefox*'")
        try #require(commands.count == 2)
        _ = try run(commands[0])
        let application = try station.wait(forApplication: "firefox-esr", app.pid)
        #expect(try run(commands[1]).contains("firefox-esr"))
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait(for: application, toBe: "suspended")
    }
}

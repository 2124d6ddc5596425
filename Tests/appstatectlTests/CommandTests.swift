import Foundation
import Glibc
import TestSupport
import Testing

/// appstatectl as a person and as a script use it, with the real daemon on a real bus.
@Suite(
    "appstatectl",
    .enabled(if: Stage.isAvailable, "needs dbus-daemon and gdbus, and the programs built beside"))
struct CommandTests {
    @Test("register, list, show, explain, suspend, resume, unregister: what a person does")
    func commands() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let registered = try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(registered.status == .exited(0))
        #expect(registered.output == "/org/appstate1/application/1\n")
        #expect(try stage.run("list").output.contains("org.example.Editor"))
        #expect(try stage.run("focus", "\(child.pid)").status == .exited(0))
        #expect(try stage.state("org.example.Editor") == "active")
        #expect(try stage.run("minimize", "org.example.Editor").status == .exited(0))
        #expect(try stage.state("1") == "background")
        #expect(try stage.run("minimize", "--undo", "\(child.pid)").status == .exited(0))
        #expect(try stage.state("/org/appstate1/application/1") == "inactive")
        #expect(try stage.run("suspend", "pid:\(child.pid)").status == .exited(0))
        #expect(try stage.state("1") == "suspended")
        let explained = try stage.run("explain", "1").output
        #expect(explained.contains("suspended") && explained.contains("request uid:\(getuid())"))
        #expect(try stage.run("resume", "1").status == .exited(0))
        #expect(try stage.state("1") == "inactive")
        #expect(try stage.run("unregister", "1").status == .exited(0))
        #expect(try stage.run("list", "--json").output == "[]\n")
    }

    @Test("terminate ends the process")
    func terminate() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(try stage.run("terminate", "--force", "org.example.Editor").status == .exited(0))
        #expect(try child.waitForExit() == .signalled(SIGKILL))
    }

    @Test("--json is JSON, with the keys that the help promises")
    func json() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let registered = try stage.json("register", "--json", "org.example.Editor", "\(child.pid)")
        #expect((registered as? [String: Any])?["number"] as? Int == 1)
        let rows = try #require(try stage.json("list", "--json") as? [[String: Any]])
        #expect(
            Set(rows.first?.keys.map { $0 } ?? []) == ["number", "path", "app_id", "pid", "uid", "state"])
        #expect(rows.first?["pid"] as? Int == Int(child.pid))
        let shown = try #require(try stage.json("show", "--json", "1") as? [String: Any])
        #expect(shown["State"] as? String == "background")
        let explained = try #require(try stage.json("explain", "--json", "1") as? [String: Any])
        #expect(explained["state"] as? String == "background")
        #expect(try stage.json("status", "--json") is [String: Any])
    }

    @Test("monitor prints each edge as it comes, and ends in good order when interrupted")
    func monitor() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        let monitor = try stage.start("monitor", "--json")
        try monitor.waitForLine(containing: "listening")
        try stage.run("focus", "\(child.pid)")
        let line = try monitor.waitForLine(containing: "DidBecomeActive")
        let object = try #require(
            try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        #expect(object["app_id"] as? String == "org.example.Editor")
        #expect(object["application"] as? Int == 1)
        kill(child.pid, SIGSTOP)
        try monitor.waitForLine(containing: "\"to\":\"suspended\"")
        let edges = monitor.output.split(separator: "\n").filter { $0.contains("\"StateChanged\"") }
            .compactMap { line -> String? in
                let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
                guard let from = object?["from"] as? String, let to = object?["to"] as? String else {
                    return nil
                }
                return "\(from)→\(to)"
            }
        #expect(
            edges == [
                "background→inactive", "inactive→active", "active→inactive", "inactive→background",
                "background→suspended",
            ])
        monitor.kill(SIGINT)
        #expect(try monitor.waitForExit() == .exited(0))
    }

    @Test("monitor says so when the daemon leaves")
    func daemonLeaves() throws {
        let stage = try Stage()
        let monitor = try stage.start("monitor")
        try monitor.waitForLine(containing: "listening")
        stage.daemon.kill(SIGTERM)
        #expect(try monitor.waitForExit() == .exited(1))
        #expect(monitor.errors.contains("appstated has left the bus"))
    }

    @Test("errors are sentences, with the exit status that the help promises")
    func errors() throws {
        let stage = try Stage()
        let none = try stage.run("show", "org.example.None")
        #expect(none.status == .exited(3) && none.errors.contains("no application \"org.example.None\""))
        #expect(try stage.run("suspend", "77").status == .exited(3))
        let refused = try stage.run("register", "org/example", "\(getpid())")
        #expect(refused.status == .exited(1) && refused.errors.contains("app_id \"org/example\""))
        #expect(try stage.run("suspend").status == .exited(64))
        #expect(try stage.run("nonsense", "--nothing").status == .exited(64))
        let first = try Child("sleep", ["1000"])
        let second = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Twice", "\(first.pid)")
        try stage.run("register", "org.example.Twice", "\(second.pid)")
        let ambiguous = try stage.run("suspend", "org.example.Twice")
        #expect(ambiguous.status == .exited(1) && ambiguous.errors.contains("several applications: 1"))
    }

    @Test("without a daemon, and without a bus, it says what to do")
    func nobodyThere() throws {
        let stage = try Stage()
        stage.daemon.kill(SIGTERM)
        try stage.daemon.waitForExit()
        let gone = try stage.run("list")
        #expect(gone.status == .exited(4) && gone.errors.contains("appstated is not running"))
        let lost = try stage.run("--address", "unix:path=/nonexistent/bus")
        #expect(lost.status == .exited(4) && lost.errors.contains("cannot be reached"))
    }

    @Test("a table fits COLUMNS; what is piped has no colours")
    func table() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example." + String(repeating: "Long", count: 30), "\(child.pid)")
        let narrow = try stage.run(["list"], environment: ["COLUMNS": "60"]).output
        #expect(narrow.split(separator: "\n").filter { $0.count > 60 }.isEmpty, "\(narrow)")
        #expect(narrow.contains("…") && narrow.contains("background"))
        #expect(try stage.run("list").output.contains(String(repeating: "Long", count: 30)))
        #expect(!narrow.contains("\u{1B}"))
    }

    @Test(
        "completion scripts are made for each shell, and bash takes its own",
        arguments: ["bash", "zsh", "fish"])
    func completion(shell: String) throws {
        let stage = try Stage()
        let script = try stage.run("--generate-completion-script", shell)
        #expect(script.status == .exited(0) && script.output.contains("appstatectl"))
        if shell == "bash" {
            let file = stage.bus.directory + "/completion"
            try script.output.write(toFile: file, atomically: true, encoding: .utf8)
            #expect(try Child("bash", ["-n", file]).waitForExit() == .exited(0))
        }
    }
}

/// A daemon on a bus of its own, and the tool that talks to it.
private final class Stage {
    let bus: PrivateBus
    let daemon: Child

    static let isAvailable =
        PrivateBus.isAvailable && Programs.inPath("gdbus") != nil
        && Programs.built("appstated") != nil && Programs.built("appstatectl") != nil

    init() throws {
        let policies = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("dbus").path
        bus = try PrivateBus(
            policyDirectories: [policies],
            policy: "<policy user=\"\(getuid())\"><allow own=\"org.appstate1\"/></policy>")
        let empty = bus.directory + "/empty.conf"
        try "".write(toFile: empty, atomically: true, encoding: .utf8)
        daemon = try Child(
            Programs.built("appstated") ?? "appstated", ["--config", empty], environment: bus.environment)
        try Child("gdbus", ["wait", "--address", bus.address, "--timeout", "30", "org.appstate1"])
            .waitForExit()
    }

    func start(_ arguments: String...) throws -> Child { try start(arguments, environment: [:]) }

    private func start(_ arguments: [String], environment: [String: String?]) throws -> Child {
        try Child(
            Programs.built("appstatectl") ?? "appstatectl", arguments,
            environment: bus.environment.merging(environment) { $1 })
    }

    @discardableResult
    func run(_ arguments: String...) throws -> (output: String, errors: String, status: Child.Ending) {
        try run(arguments, environment: ["COLUMNS": nil])
    }

    func run(
        _ arguments: [String], environment: [String: String?]
    ) throws -> (output: String, errors: String, status: Child.Ending) {
        let child = try start(arguments, environment: environment)
        let status = try child.waitForExit()
        return (child.output, child.errors, status)
    }

    func json(_ arguments: String...) throws -> Any {
        let output = try run(arguments, environment: [:]).output
        return try JSONSerialization.jsonObject(with: Data(output.utf8))
    }

    func state(_ name: String) throws -> String? {
        (try json("show", "--json", name) as? [String: Any])?["State"] as? String
    }
}

import AppStateBus
import Desktop
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Programs that are started as units of a real service manager.
@Suite(
    "Programs as units", .serialized,
    .enabled(if: UserManager.isAvailable, Comment(rawValue: UserManager.whatIsMissing)))
struct UnitTests {
    private final class Stage: UnitStage {
        func start(_ id: String, _ words: [String], directory: String? = nil) throws -> StartedProgram {
            var result: Result<StartedProgram, MethodError>?
            let request = ProgramRequest(
                id: id, name: "App",
                command: ProgramCommand(program: words[0], arguments: words, directory: directory),
                environment: [("XDG_ACTIVATION_TOKEN", "a $token"), ("DISPLAY", ":77")])
            starter.start(request) { result = $0 }
            try turn { result != nil }
            return try #require(result).get()
        }

        /// The units of the applications that were started here.
        var units: [String] {
            get throws {
                let call = try bus.newCall(
                    destination: "org.freedesktop.systemd1", path: "/org/freedesktop/systemd1",
                    interface: "org.freedesktop.systemd1.Manager", member: "ListUnitsByPatterns")
                try call.append(strings: [])
                try call.append(strings: ["app-appstate-*"])
                let reply = try bus.call(call, timeout: 300_000_000)
                var names: [String] = []
                let contents = "ssssssouso"
                guard try reply.enter(.array, "(\(contents))") else { return [] }
                while try reply.enter(.struct, contents) {
                    names.append(try reply.readString())
                    try reply.skip(String(contents.dropFirst()))
                    try reply.exit()
                }
                return names
            }
        }

        func text(_ name: String) -> String? {
            try? String(contentsOfFile: "\(scratch.path)/\(name)", encoding: .utf8)
        }
    }

    @Test("a program gets its own unit, waits, runs, reports how it ended, and the unit is collected")
    func proceed() throws {
        let stage = try Stage()
        let out = "\(stage.scratch.path)/out"
        let script =
            "printf '%s %s %s %s\\n' $$ \"$1\" \"$XDG_ACTIVATION_TOKEN\" $DISPLAY > \(out); pwd >> \(out); grep ^0: /proc/self/cgroup >> \(out);"
            + "exit 7"
        let program = try stage.start(
            "org.example.my-app", ["/bin/sh", "-c", script, "sh", "$HOME ${x} %n \"q\"\n\\"],
            directory: "/usr")
        let unit = try #require(program.unit)
        #expect(unit.hasPrefix(#"app-appstate-org.example.my\x2dapp@"#) && unit.hasSuffix(".service"))
        #expect(stage.text("out") == nil)
        #expect(try stage.units == [unit])
        let hierarchy = try #require(UnifiedHierarchy.find())
        #expect(
            ApplicationUnit(inPath: try Cgroup.of(program.pid, in: hierarchy).path)?.application
                == "org.example.my-app")
        var failure: String??
        program.proceed { failure = .some($0) }
        try stage.turn { failure != nil && program.ending != nil }
        #expect(failure == .some(nil) && program.ending == .exited(7))
        let lines = (stage.text("out") ?? "").components(separatedBy: "\n")
        #expect(lines.prefix(2) == ["\(program.pid) $HOME ${x} %n \"q\"", "\\ a $token :77"])
        #expect(lines.dropFirst(2).first == "/usr")
        #expect(lines.dropFirst(3).first?.hasSuffix("/app.slice/\(unit)") == true)
        try stage.turn { try stage.units.isEmpty }
    }

    @Test(
        "a unit inherits what the manager does not have of our environment, and nothing that systemd refuses")
    func environment() throws {
        let stage = try Stage()
        let out = "\(stage.scratch.path)/out"
        // What changes later counts, except for what says which session it is.
        let change = try stage.bus.newCall(
            destination: "org.freedesktop.systemd1", path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager", member: "SetEnvironment")
        try change.append(strings: [
            "CHANGED=new", "DISPLAY=:88", "NIRI_SOCKET=/other", "GNOME_SETUP_DISPLAY=:99",
        ])
        _ = try stage.bus.call(change, timeout: 300_000_000)
        let child = try Child(
            try #require(StartTests.actor), ["a", "sh", "-c", "env > \(out)"],
            environment: [
                "NOTIFY_SOCKET": "/x", "DESKTOP_STARTUP_ID": "old", "MINE": "a b $x",
                "CHANGED": "old", "DISPLAY": ":77", "NIRI_SOCKET": "/ours",
                "BASH_FUNC_x%%": "() { :; }",
                "BAD": "a\u{1}b", "DBUS_SESSION_BUS_ADDRESS": stage.manager.address,
                "XDG_RUNTIME_DIR": stage.scratch.path,
            ])
        _ = try child.waitForExit()
        #expect(child.output.contains("app-appstate-a@"), "\(child.output)")
        let lines = (stage.text("out") ?? "").components(separatedBy: "\n")
        #expect(lines.contains("CHANGED=new") && lines.contains("DISPLAY=:77"))
        #expect(lines.contains("NIRI_SOCKET=/ours"))
        #expect(lines.contains("DBUS_SESSION_BUS_ADDRESS=\(stage.manager.address)"))
        #expect(lines.contains("MINE=a b $x") && lines.contains("XDG_ACTIVATION_TOKEN=a $token"))
        #expect(lines.filter { $0.hasPrefix("DESKTOP_STARTUP_ID=") } == ["DESKTOP_STARTUP_ID=an id"])
        for name in ["NOTIFY_SOCKET=/x", "BASH_FUNC", "BAD=", "GNOME_SETUP_DISPLAY="] {
            #expect(!lines.contains { $0.hasPrefix(name) })
        }
    }

    @Test("signals, cancellations and programs that cannot be run are reported")
    func endings() throws {
        let stage = try Stage()
        let killed = try stage.start("a", ["/bin/sh", "-c", "kill -TERM $$"])
        killed.proceed()
        let cancelled = try stage.start("a", ["/bin/touch", "\(stage.scratch.path)/out"])
        cancelled.cancel()
        let missing = try stage.start("a", ["/no/such"])
        var failure: String??
        missing.proceed { failure = .some($0) }
        try stage.turn {
            failure != nil && [killed, cancelled, missing].allSatisfy { $0.ending != nil }
        }
        #expect(killed.ending == .signalled(SIGTERM, coreDumped: false))
        #expect(cancelled.ending == .exited(0) && stage.text("out") == nil)
        #expect(missing.ending == .exited(127))
        #expect(failure == "No such file or directory")
        try stage.turn { try stage.units.isEmpty }
    }

    @Test("processes that outlive the main process of their unit are left alone")
    func others() throws {
        let stage = try Stage()
        let script = "sleep 1000 & echo $! > \(stage.scratch.path)/out"
        let first = try stage.start("a", ["/bin/sh", "-c", script])
        first.proceed()
        try stage.turn { first.ending != nil }
        #expect(first.ending == .exited(0))
        #expect(try stage.units == [try #require(first.unit)])
        let left = try #require(stage.text("out").flatMap { Int32($0.dropLast()) })
        #expect(kill(left, 0) == 0)
        kill(left, SIGKILL)
        try stage.turn { try stage.units.isEmpty }
    }

    @Test("on a bus without a service manager the program becomes our child")
    func fallback() throws {
        let bus = try PrivateBus()
        let loop = try EventLoop()
        let connection = try Bus.open(address: bus.address)
        try connection.attach(to: loop)
        let starter = ProgramStarter(
            loop: loop, bus: connection, executable: try #require(StartTests.actor), directory: bus.directory)
        var result: Result<StartedProgram, MethodError>?
        let request = ProgramRequest(
            id: "a", name: "A", command: ProgramCommand(program: "/bin/true", arguments: ["true"]))
        starter.start(request) { result = $0 }
        while result == nil { _ = try loop.runOnce(timeout: 50_000) }
        let program = try #require(result).get()
        #expect(program.unit == nil)
        program.proceed()
        while program.ending == nil { _ = try loop.runOnce(timeout: 50_000) }
        #expect(program.ending == .exited(0))
    }
}

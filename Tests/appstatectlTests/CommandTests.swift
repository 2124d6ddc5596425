import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

@testable import appstatectl

/// appstatectl as users and scripts call it, with the real daemon on a real bus.
@Suite(
    "appstatectl",
    .enabled(if: Stage.isAvailable, "needs dbus-daemon and gdbus, and the programs built beside"))
struct CommandTests {
    @Test("a user registers, lists, shows, explains, suspends, resumes and unregisters an application")
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
        #expect(try eventually { try stage.state("1") == "suspended" })
        let explained = try stage.run("explain", "1").output
        #expect(explained.contains("suspended") && explained.contains("request uid:\(getuid())"))
        #expect(explained.hasPrefix("It is suspended at the request of \(userName(getuid())).\n"))
        #expect(try stage.run("resume", "1").status == .exited(0))
        #expect(try stage.state("1") == "inactive")
        #expect(try stage.run("unregister", "1").status == .exited(0))
        #expect(try stage.run("list", "--json").output == "[]\n")
    }

    @Test("rule writes, shows and deletes a rule, and rules names the applications that each rule matches")
    func rules() throws {
        let stage = try Stage()
        let own = stage.bus.directory + "/config"
        @discardableResult
        func run(_ arguments: String...) throws -> (output: String, errors: String, status: Child.Ending) {
            try stage.run(arguments, environment: ["XDG_CONFIG_HOME": own, "COLUMNS": nil])
        }
        #expect(try run("rules").errors.contains("There are no rules"))
        let made = try run("rule", "sleep", "Suspension=automatic", "BackgroundGraceSec=2min")
        #expect(made.status == .exited(0))
        let text = try String(contentsOfFile: own + "/appstated/session.conf", encoding: .utf8)
        #expect(text == "[Application sleep]\nSuspension=automatic\nBackgroundGraceSec=2min\n")
        #expect(try run("rule", "sleep").output == "Suspension=automatic\nBackgroundGraceSec=2min\n")
        #expect(try run("rules").output.contains("no running application"))

        // As the session agent would.
        let child = try Child("sleep", ["1000"])
        let path = try stage.run("register", "org.example.Sleep", "\(child.pid)").output
            .trimmingCharacters(in: .newlines)
        let bus = try Bus.open(address: stage.bus.address)
        let message = try bus.newCall(
            destination: "org.appstate1", path: path, interface: "org.appstate1.Application",
            member: "Configure")
        try message.appendDictionary([("rule", .string("sleep"))])
        _ = try bus.call(message)
        #expect(try run("rules").output.contains("org.example.Sleep (1), by its program"))
        try run("rule", "sleep", "IgnoreCallers=playerctl [ab]*")
        #expect(try run("explain", "1").output.contains("IgnoreCallers=playerctl [ab]*\n"))
        try run("rule", "sleep", "IgnoreCallers=")

        for wrong in ["Suspension=often", "Suspend=yes", "x", "KeepWhile=A", "KeepWhile=audio none"] {
            #expect(try run("rule", "sleep", wrong).status == .exited(64))
        }
        // Other reporters may have words of their own.
        let odd = try run("rule", "sleep", "KeepWhile=audio netwrok")
        #expect(odd.status == .exited(0) && odd.errors.contains("nothing here reports \"netwrok\""))
        #expect(!odd.errors.contains("\"audio\"") && !odd.errors.contains("command"))
        #expect(try run("rules").errors.contains("netwrok"))
        #expect(try !run("rule", "sleep", "KeepWhile=").errors.contains("netwrok"))
        #expect(try run("rule", "sleep", "BackgroundGraceSec=").status == .exited(0))
        #expect(try run("rule", "sleep").output == "Suspension=automatic\n")
        #expect(try run("rule", "--delete", "sleep").status == .exited(0))
        #expect(try run("rule", "--delete", "sleep").status == .exited(1))
        #expect(try run("rule", "sleep").status == .exited(1))
    }

    @Test("launch says that an application stays suspended, and how it is resumed")
    func launchSuspended() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(try stage.run("launch", "org.example.Editor").errors == "")
        try stage.suspend("1")
        let launched = try stage.run("launch", "org.example.Editor")
        #expect(launched.status == .exited(0) && launched.output == "/org/appstate1/application/1\n")
        let hint =
            "appstatectl: org.example.Editor stays suspended (request uid:\(getuid())) until: "
            + "appstatectl resume 1\n"
        #expect(launched.errors == hint)
        let refused = try stage.run("launch", "org.example.Editor", "https://example.org/")
        #expect(refused.status == .exited(1) && refused.errors.hasPrefix(hint))
    }

    @Test(
        "resume fails while another user's request keeps the application suspended, and says whose",
        .enabled(if: Stage.othersCanRun, "needs root, setpriv, and programs that another user can run"))
    func resumeOfOthers() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"], uid: Stage.nobody)
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        try stage.suspend("1")
        let resume = try Child(
            Programs.built("appstatectl") ?? "appstatectl", ["resume", "1"],
            environment: stage.bus.environment, uid: Stage.nobody)
        #expect(try resume.waitForExit() == .exited(1))
        let sentence = "stays suspended (request uid:0) until uid:0 has run: appstatectl resume 1\n"
        #expect(resume.errors.hasSuffix(sentence), "\(resume.errors)")
    }

    @Test("top suspends what is chosen by a key, and leaves the terminal as it was", arguments: [SIGTERM, 0])
    func top(signal: Int32) throws {
        let stage = try Stage()
        let sleeper = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(sleeper.pid)")
        let piped = try stage.run("top")
        #expect(piped.status == .exited(1) && piped.errors.contains("top needs a terminal"))
        let (terminal, line) = try Stage.newTerminal()
        defer { close(terminal) }
        defer { close(line) }
        var (before, during, after) = (termios(), termios(), termios())
        tcgetattr(line, &before)
        let top = try Child(
            Programs.built("appstatectl") ?? "appstatectl", ["top"],
            environment: stage.bus.environment.merging(["TERM": "xterm"]) { $1 },
            descriptors: [STDIN_FILENO: line, STDOUT_FILENO: line])
        var shown = ""
        func read(until text: String) throws {
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while !shown.contains(text) {
                let count = Glibc.read(terminal, &buffer, buffer.count)
                try #require(count > 0)
                shown += String(decoding: buffer.prefix(count), as: UTF8.self)
            }
            shown = ""
        }
        try read(until: "> org.example.Editor")
        tcgetattr(line, &during)
        #expect(during.c_lflag & tcflag_t(ICANON | ECHO) == 0)
        #expect(write(terminal, "s", 1) == 1)
        try read(until: "suspended")
        #expect(try stage.state("1") == "suspended")
        if signal == 0 { #expect(write(terminal, "q", 1) == 1) } else { top.kill(signal) }
        #expect(try top.waitForExit() == .exited(0))
        // The other screen is left.
        try read(until: "\u{1B}[?1049l")
        tcgetattr(line, &after)
        #expect(after.c_lflag == before.c_lflag && after.c_iflag == before.c_iflag)
        #expect(after.c_oflag == before.c_oflag)
    }

    @Test("terminate ends the process")
    func terminate() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(try stage.run("terminate", "--force", "org.example.Editor").status == .exited(0))
        #expect(try child.waitForExit() == .signalled(SIGKILL))
    }

    @Test(
        "windows lists the windows of one application or of all, with the keys that the manual page documents"
    )
    func windows() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(try stage.run("windows").errors == "No windows are reported.\n")
        let reporter = try Bus.open(address: stage.bus.address)
        for (number, title, isMinimized) in [(1, "One\u{1b}[31m", false), (2, "Two", true)] {
            let message = try reporter.newCall(
                destination: "org.appstate1", path: "/org/appstate1", interface: "org.appstate1.Reporter",
                member: "UpdateWindow")
            try message.append(UInt64(number))
            try message.append(UInt32(child.pid))
            try message.appendDictionary([("title", .string(title)), ("minimized", .bool(isMinimized))])
            _ = try reporter.call(message)
        }
        let lines = try stage.run("windows", "org.example.Editor").output.split(separator: "\n")
        #expect(lines.count == 3 && lines[0].hasPrefix("N  APPLICATION"))
        #expect(lines[1].contains("foreground-inactive") && lines[1].hasSuffix("One\\x1b[31m"))
        #expect(lines[2].contains("background (minimized)") && lines[2].hasSuffix("Two"))
        let rows = try #require(try stage.json("windows", "--json") as? [[String: Any]])
        #expect(rows.map { $0["title"] as? String } == ["One\u{1b}[31m", "Two"])
        let manual = try Self.manual().components(separatedBy: .whitespacesAndNewlines)
        for key in rows[0].keys { #expect(manual.contains(key), "\(key)") }
        #expect(try stage.run("windows", "org.example.None").status == .exited(3))
        #expect(try stage.run("windows", "7").status == .exited(3))
        #expect(try stage.run("activate", "1").errors.contains("agent"))
    }

    @Test("history without an id lists the ids")
    func historyOfAll() throws {
        let stage = try Stage(keeps: true)
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(try stage.run("history").output == "")
        child.kill(SIGKILL)
        _ = try child.waitForExit()
        #expect(try eventually { try stage.run("history").output == "org.example.Editor\n" })
        #expect(try stage.json("history", "--json") as? [String] == ["org.example.Editor"])
        #expect(try stage.run("history", "--user", "\(getuid())").output == "org.example.Editor\n")
        #expect(try stage.run("history", "--user", "0", "org.example.Editor").status == .exited(64))
    }

    @Test("forget deletes what is kept about an application that has ended")
    func forget() throws {
        let stage = try Stage(keeps: true)
        let id = "org.example.Editor"
        let child = try Child("sleep", ["1000"])
        try stage.run("register", id, "\(child.pid)")
        let early = try stage.run("forget", id)
        #expect(early.status == .exited(1) && early.errors.contains("is registered"))
        child.kill(SIGKILL)
        _ = try child.waitForExit()
        #expect(try eventually { try stage.run("history", id).output.contains("background") })
        #expect(try stage.run("forget", id).status == .exited(0))
        #expect(try stage.run("history", id).errors.contains("No end of \(id) is recorded"))
        #expect(try stage.run("forget", id).status == .exited(3))
    }

    @Test(
        "reload says how many lines of the configuration are invalid",
        .enabled(if: getuid() == 0, "needs root"))
    func reload() throws {
        let stage = try Stage()
        let file = stage.bus.directory + "/appstated.conf"
        for (text, said) in [
            ("[Pressure]\nSource=/none\n", ""), ("[Pressure]\nSource=none\n", "1 line is invalid"),
            ("[Limits]\nUsers=2\nStringBytes=many\n[Pressure]\nSource=/none\n", "2 lines are invalid"),
        ] {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            let result = try stage.run("reload")
            #expect(result.status == .exited(0))
            #expect(said.isEmpty ? result.errors == "" : result.errors.contains(said), "\(result.errors)")
        }
    }

    /// The manual page's section about JSON.
    private static func manual() throws -> String {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("man/appstatectl.1")
        let sections = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "\n.Sh ")
        return try #require(sections.first { $0.hasPrefix("JSON\n") })
    }

    @Test("--json prints JSON with the keys that the manual page documents")
    func json() throws {
        let stage = try Stage()
        let manual = try Self.manual().components(separatedBy: .whitespacesAndNewlines)
        func documented(_ value: Any) {
            for key in (value as? [String: Any])?.keys.sorted() ?? [] {
                #expect(manual.contains(key), "\(key)")
            }
        }
        let child = try Child("sleep", ["1000"])
        let registered = try stage.json("register", "--json", "org.example.Editor", "\(child.pid)")
        #expect((registered as? [String: Any])?["number"] as? Int == 1)
        documented(registered)
        let rows = try #require(try stage.json("list", "--json") as? [[String: Any]])
        #expect(
            Set(rows.first?.keys.map { $0 } ?? []) == ["number", "path", "app_id", "pid", "uid", "state"])
        #expect(rows.first?["pid"] as? Int == Int(child.pid))
        documented(rows[0])
        let shown = try #require(try stage.json("show", "--json", "1") as? [String: Any])
        #expect(shown["State"] as? String == "background")
        documented(shown)
        // Without --json it has the same properties, and each time once.
        let text = try stage.run("show", "1").output
        for key in shown.keys where key != "path" && !key.hasSuffix("Monotonic") {
            #expect(text.contains("\(key): "), "\(key)")
        }
        #expect(text.contains(" UserActivity: –\n"))
        let explained = try #require(try stage.json("explain", "--json", "1") as? [String: Any])
        #expect(explained["state"] as? String == "background")
        // It is "manual": in the background it must not be ended.
        #expect(explained["reclaim-rank"] as? String == "")
        #expect(explained["reclaim-bytes"] as? Int == 0)
        #expect(explained["memory-pressure"] as? String == "normal")
        documented(explained)
        try stage.suspend("1")
        let suspended = try #require(try stage.json("explain", "--json", "1") as? [String: Any])
        #expect(suspended["reclaim-rank"] as? String == "stopped")
        documented(suspended)
        let status = try stage.json("status", "--json")
        #expect(status is [String: Any])
        documented(status)
    }

    @Test("doctor finds the daemon and the session agent, and fails while something essential is missing")
    func doctor() throws {
        let stage = try Stage()
        let environment =
            [
                "DISPLAY": nil, "WAYLAND_DISPLAY": nil, "SWAYSOCK": nil, "DBUS_SESSION_BUS_ADDRESS": nil,
                "XDG_RUNTIME_DIR": nil, "COLUMNS": nil,
            ] as [String: String?]
        func look() throws -> [String: [String: Any]] {
            let ended = try stage.run(["doctor", "--json"], environment: environment)
            #expect(ended.status == .exited(1) && ended.errors == "")
            let rows = try JSONSerialization.jsonObject(with: Data(ended.output.utf8)) as? [[String: Any]]
            let manual = try Self.manual().components(separatedBy: .whitespacesAndNewlines)
            for key in rows?.first?.keys.sorted() ?? [] { #expect(manual.contains(key), "\(key)") }
            return Dictionary(uniqueKeysWithValues: (rows ?? []).map { ($0["name"] as? String ?? "", $0) })
        }
        func found(_ name: String) throws -> String { try look()[name]?["found"] as? String ?? "" }
        func isThere(_ name: String) throws -> Bool { try look()[name]?["ok"] as? Bool ?? false }
        #expect(try found("daemon").hasSuffix(", Mode=enforce"))
        #expect(try isThere("daemon") && !isThere("agent") && !isThere("reporter"))
        // The agents of other tests are on other buses.
        let agent = try Child(
            Programs.built("appstate-session") ?? "appstate-session", ["--launch-only"],
            environment: stage.bus.environment.merging(environment) { $1 })
        #expect(try eventually { try isThere("agent") })
        #expect(try found("agent").contains("pid \(agent.pid)"))
        #expect(try found("reporter") == "appstate-session runs with --launch-only")
        let lines = try stage.run(["doctor"], environment: environment).output.split(separator: "\n")
        #expect(lines.count == 11 && lines.last == "Essential, and missing: reporter.")
        stage.daemon.kill(SIGTERM)
        _ = try stage.daemon.waitForExit()
        #expect(try found("daemon") == "appstated is not running")
        #expect(try isThere("agent") && !isThere("stop-detection"))
        stage.bus.stop()
        #expect(try found("daemon").contains("cannot be reached"))
        #expect(try !isThere("agent"))
    }

    @Test("list shows the applications in one state only, and says so if there are none")
    func listState() throws {
        let stage = try Stage()
        let empty = try stage.run("list", "--state", "active")
        #expect(empty.status == .exited(0) && empty.errors.hasPrefix("No applications are registered"))
        let children = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        for child in children { try stage.run("register", "org.example.App\(child.pid)", "\(child.pid)") }
        try stage.suspend("2")
        let rows = try stage.run("list", "--state", "suspended").output.split(separator: "\n")
        #expect(rows.count == 2 && rows.last?.hasPrefix("2 ") == true)
        let json = try stage.json("list", "--json", "--state", "background") as? [[String: Any]]
        #expect(json?.compactMap { $0["number"] as? Int } == [1])
        #expect(try stage.run("--state", "background").output.contains("org.example.App\(children[0].pid)"))
        let none = try stage.run("list", "--state", "active")
        #expect(none.status == .exited(0) && none.output.isEmpty)
        #expect(none.errors.contains("is in the state active"))
        let wrong = try stage.run("list", "--state", "asleep")
        #expect(wrong.status == .exited(64))
        for state in ["not-running", "inactive", "active", "background", "suspended"] {
            #expect(wrong.errors.contains("'\(state)'"), "\(wrong.errors)")
        }
        #expect(List.nothing(nil, isRoot: false) == "No applications are registered that you may see.")
        #expect(List.nothing(nil, isRoot: true) == "No applications are registered.")
    }

    @Test("monitor prints each edge as it happens, and exits cleanly when interrupted")
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
        let manual = try Self.manual().components(separatedBy: .whitespacesAndNewlines)
        for key in object.keys { #expect(manual.contains(key), "\(key)") }
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

    @Test("wait returns once the application is in one of the states")
    func waitForState() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        #expect(try stage.run("wait", "--state", "background", "1").status == .exited(0))
        let waiting = try stage.start("wait", "--state", "active", "--state", "suspended", "1")
        try stage.suspend("1")
        #expect(try waiting.waitForExit() == .exited(0))
        #expect(waiting.output.isEmpty && waiting.errors.isEmpty)
    }

    @Test("wait returns once the application has ended, and fails if it was to be in a state first")
    func waitForEnd() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        let ended = try stage.startSubscribed("wait", "org.example.Editor").child
        let state = try stage.startSubscribed("wait", "--state", "active", "org.example.Editor").child
        child.kill(SIGKILL)
        #expect(try ended.waitForExit() == .exited(0))
        #expect(try state.waitForExit() == .exited(3))
        #expect(state.errors == "appstatectl: org.example.Editor has ended\n")
        #expect(try stage.run("wait", "1").status == .exited(3))
        #expect(try stage.run("wait", "--state", "asleep", "1").status == .exited(64))
    }

    @Test("monitor reports that the daemon has left, and continues with the next one")
    func daemonLeaves() throws {
        let stage = try Stage()
        let monitor = try stage.start("monitor")
        try monitor.waitForLine(containing: "listening")
        stage.daemon.kill(SIGTERM)
        _ = try stage.daemon.waitForExit()
        let next = try stage.startDaemon()
        try monitor.waitForLine(containing: "Resync")
        #expect(monitor.errors.contains("appstated has left the bus"))
        let child = try Child("sleep", ["1000"])
        #expect(try stage.run("register", "org.example.Next", "\(child.pid)").status == .exited(0))
        try monitor.waitForLine(containing: "org.example.Next")
        monitor.kill(SIGINT)
        #expect(try monitor.waitForExit() == .exited(0))
        withExtendedLifetime(next) {}
    }

    @Test("errors are sentences, with the documented exit status")
    func errors() throws {
        let stage = try Stage()
        let none = try stage.run("show", "org.example.None")
        #expect(none.status == .exited(3) && none.errors.contains("no application \"org.example.None\""))
        #expect(try stage.run("suspend", "77").status == .exited(3))
        let nobody = try stage.run("launch", "org.example.None")
        #expect(nobody.status == .exited(1) && nobody.errors.contains("No session agent runs for you ("))
        let malformed = try stage.run("show", "pid:abc")
        #expect(malformed.status == .exited(64) && malformed.errors.contains("\"pid:abc\" is not"))
        #expect(try stage.run("show", "pid:99999999").status == .exited(3))
        let bare = try stage.run("suspend", "99999999")
        #expect(bare.status == .exited(3) && bare.errors.contains("pid:99999999"))
        for name in ["77", "/org/appstate1/application/77"] {
            #expect(try stage.run("monitor", name).status == .exited(3), "\(name)")
        }
        let refused = try stage.run("register", "org/example", "\(getpid())")
        #expect(refused.status == .exited(64) && refused.errors.contains("\"org/example\" is no app"))
        #expect(try stage.run("history", "bad id").status == .exited(64))
        #expect(try stage.run("forget", "bad id").status == .exited(64))
        #expect(try stage.run("suspend").status == .exited(64))
        #expect(try stage.run("nonsense", "--nothing").status == .exited(64))
        let register = ["register", "org.example.A", "\(getpid())"]
        for value in [
            ["--suspension", "perhaps"], ["--launch-mode", "sideways"], ["--address", "nonsense"],
            ["--address", "unix:path"],
        ] {
            let wrong = try stage.run(register + value, environment: ["COLUMNS": nil])
            #expect(wrong.status == .exited(64) && wrong.errors.contains(value[1]), "\(value): \(wrong)")
        }
        #expect(try stage.run("register", "org.example.A", "0").status == .exited(64))
        let nothing = try stage.run("focus", "0")
        #expect(nothing.status == .exited(64) && nothing.errors.contains("must be above 0"))
        let first = try Child("sleep", ["1000"])
        let second = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Twice", "\(first.pid)")
        try stage.run("register", "org.example.Twice", "\(second.pid)")
        let ambiguous = try stage.run("suspend", "org.example.Twice")
        #expect(ambiguous.status == .exited(2) && ambiguous.errors.contains("several applications: 1"))
    }

    @Test("without a daemon, or without a bus, the message says what is wrong")
    func nobodyThere() throws {
        let stage = try Stage()
        stage.daemon.kill(SIGTERM)
        try stage.daemon.waitForExit()
        let gone = try stage.run("list")
        #expect(gone.status == .exited(4) && gone.errors.contains("appstated is not running"))
        let lost = try stage.run("--address", "unix:path=/nonexistent/bus")
        #expect(
            lost.status == .exited(4)
                && lost.errors.contains("bus at \"unix:path=/nonexistent/bus\" cannot be reached"))
    }

    /// Characters that control a terminal, end lines or change the text direction, and how they are shown.
    private static let strange =
        "a\u{1B}]0;b\u{7}c\nd\u{9B}e\u{202E}f\u{2028}g\u{7F}h\ti\rj\u{2066}k\u{200F}l"
    private static let tamed =
        #"a\x1b]0;b\x07c\nd\x9be\u{202e}f\u{2028}g\x7fh\ti\rj\u{2066}k\u{200f}l"#

    @Test(
        "control characters in texts from others are shown escaped, in a pipe and on a terminal")
    func strangers() throws {
        let stage = try Stage()
        let bus = try Bus.open(address: stage.bus.address)
        try bus.tell("/org/appstate1", "Manager", "Register") {
            try $0.append("org.example.Editor")
            try $0.append(UInt32(0))
            try $0.appendDictionary([])
        }
        try bus.tell("/org/appstate1/application/1", "Application", "BeginBackgroundTask") {
            try $0.append(Self.strange)
        }
        let shown = try stage.run("show", "1").output
        #expect(shown.contains("1 \(Self.tamed), no deadline") && !shown.isStrange, "\(shown)")
        #expect(try !stage.run("explain", "1").output.isStrange)
        let onTerminal = try stage.onTerminal(["show", "1"], columns: 1_000)
        #expect(onTerminal.contains(Self.tamed) && !onTerminal.isStrange)
        let refused = try stage.run("show", Self.strange)
        #expect(refused.errors.contains(Self.tamed) && !refused.errors.isStrange)
        // Programs get the original text.
        let tasks = (try stage.json("show", "--json", "1") as? [String: Any])?["BackgroundTasks"]
        #expect((tasks as? [[Any]])?.first?.dropFirst().first as? String == Self.strange)
    }

    @Test("a failure for one application does not stop the others, and the first one gives the status")
    func several() throws {
        let stage = try Stage()
        let children = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        for child in children { try stage.run("register", "org.example.App\(child.pid)", "\(child.pid)") }
        let ended = try stage.run("suspend", "org.example.None", "1", "77", "2")
        #expect(ended.status == .exited(3))
        #expect(ended.errors.contains("org.example.None: no application"), "\(ended.errors)")
        #expect(ended.errors.contains("appstatectl: 77: "), "\(ended.errors)")
        #expect(ended.errors.split(separator: "\n").count == 2, "\(ended.errors)")
        #expect(try eventually { try stage.state("1") == "suspended" })
        #expect(try eventually { try stage.state("2") == "suspended" })
        // Among failures with different statuses, the first one counts.
        let third = try Child("sleep", ["1000"])
        let fourth = try Child("sleep", ["1000"])
        for child in [third, fourth] { try stage.run("register", "org.example.Twice", "\(child.pid)") }
        #expect(try stage.run("resume", "org.example.Twice", "77", "1").status == .exited(2))
        #expect(try stage.run("resume", "77", "org.example.Twice", "2").status == .exited(3))
        #expect(try stage.state("1") == "background")
        #expect(try stage.state("2") == "background")
        #expect(try stage.run("--help").output.contains("fails for one, it continues"))
        // A missing daemon is reported once.
        stage.daemon.kill(SIGTERM)
        try stage.daemon.waitForExit()
        let gone = try stage.run("suspend", "1", "2")
        #expect(gone.status == .exited(4) && gone.errors.split(separator: "\n").count == 1)
    }

    @Test("bash completes each argument with what the command takes there")
    func completedWords() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.run("register", "org.example.Editor", "\(child.pid)")
        let data = stage.bus.directory + "/data"
        try FileManager.default.createDirectory(
            atPath: data + "/applications/kde4", withIntermediateDirectories: true)
        // bash would expand the last two.
        for (name, hidden) in [
            ("org.example.Mail", "false"), ("kde4/foo", "false"), ("gone", "true"),
            ("Sid Meier's Civ", "false"), ("$(cd $XDG_DATA_HOME;touch ran)", "false"),
        ] {
            try "[Desktop Entry]\nType=Application\nName=x\nExec=true\nHidden=\(hidden)\n".write(
                toFile: "\(data)/applications/\(name).desktop", atomically: true, encoding: .utf8)
        }
        let script = stage.bus.directory + "/completion"
        try stage.run("--generate-completion-script", "bash").output.write(
            toFile: script, atomically: true, encoding: .utf8)
        func words(_ line: String...) throws -> [String] {
            let ended = try stage.complete(script, line, dataDirectory: data)
            return ended.split(separator: "\n").map(String.init)
        }
        for command in ["focus", "minimize", "history", "rule", "schedule"] {
            #expect(try words(command, "") == ["org.example.Editor"], "\(command)")
        }
        #expect(try words("show", "") == ["1", "org.example.Editor"])
        #expect(try words("launch", "") == ["kde4-foo", "org.example.Mail"])
        #expect(try words("launch", "org") == ["org.example.Mail"])
        #expect(!FileManager.default.fileExists(atPath: data + "/ran"))
        let file = stage.bus.directory + "/note"
        try "".write(toFile: file, atomically: true, encoding: .utf8)
        #expect(try words("launch", "org.example.Mail", stage.bus.directory + "/no") == [file])
        #expect(try !words("").contains("complete"))
    }
}

/// A daemon on a private bus, and the tool that talks to it.
private final class Stage {
    let bus: PrivateBus
    let daemon: Child

    static let isAvailable =
        PrivateBus.isAvailable && Programs.inPath("gdbus") != nil
        && Programs.built("appstated") != nil && Programs.built("appstatectl") != nil
    static let nobody: UInt32 = getpwnam("nobody")?.pointee.pw_uid ?? 65_534
    static let othersCanRun: Bool = {
        guard isAvailable, getuid() == 0, Programs.inPath("setpriv") != nil,
            let program = Programs.built("appstatectl"),
            let probe = try? Child(program, ["--version"], uid: nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    /// - Parameter keeps: the daemon keeps history and saved state.
    init(keeps: Bool = false) throws {
        bus = try PrivateBus.forDaemon()
        let configuration = bus.directory + "/appstated.conf"
        // Other programs on this machine must not cause reclaims: no source, no pressure.
        try "[Pressure]\nSource=/none".write(toFile: configuration, atomically: true, encoding: .utf8)
        daemon = try Self.startDaemon(on: bus, keeps: keeps)
    }

    /// Starts the next daemon, once the first has ended.
    func startDaemon() throws -> Child { try Self.startDaemon(on: bus) }

    private static func startDaemon(on bus: PrivateBus, keeps: Bool = false) throws -> Child {
        let directory = bus.directory + "/state"
        if keeps { mkdir(directory, 0o700) }
        let daemon = try Child(
            Programs.built("appstated") ?? "appstated", ["--config", bus.directory + "/appstated.conf"],
            environment: bus.environment.merging(["STATE_DIRECTORY": keeps ? directory : nil]) { $1 })
        let ready = try Child(
            "gdbus", ["wait", "--address", bus.address, "--timeout", "300", "org.appstate1"])
        try #require(try ready.waitForExit() == .exited(0))
        return daemon
    }

    func start(_ arguments: String...) throws -> Child { try start(arguments, environment: [:]) }

    private func start(_ arguments: [String], environment: [String: String?]) throws -> Child {
        try Child(
            Programs.built("appstatectl") ?? "appstatectl", arguments,
            environment: bus.environment.merging(environment) { $1 })
    }

    /// Starts a command, and returns once it has subscribed, with the name of its connection.
    func startSubscribed(_ arguments: String...) throws -> (child: Child, name: String) {
        let monitor = try Child(
            "stdbuf", ["-oL", "dbus-monitor", "--address", bus.address, "member=Subscribe"])
        // The bus says this to a connection that becomes a monitor.
        try monitor.waitForLine(containing: "NameLost")
        let child = try start(arguments, environment: [:])
        let line = try monitor.waitForLine(containing: "member=Subscribe")
        let sender = line.split(separator: " ").first { $0.hasPrefix("sender=") }
        return (child, String(sender?.dropFirst("sender=".count) ?? ""))
    }

    /// Suspends an application, and waits until it is: on a busy machine the answer may come first.
    func suspend(_ application: String) throws {
        try run("suspend", application)
        let isSuspended = try eventually {
            (try json("show", "--json", application) as? [String: Any])?["State"] as? String == "suspended"
        }
        try #require(isSuspended)
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

    /// Both ends of a new terminal. No child of another test inherits them.
    static func newTerminal() throws -> (terminal: Int32, line: Int32) {
        // TIOCSPTLCK and TIOCGPTPEER, which the module map lacks.
        let terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        var unlocked: Int32 = 0
        guard terminal >= 0, ioctl(terminal, 0x4004_5431, &unlocked) == 0,
            case let line = ioctl(terminal, 0x5441, O_RDWR | O_NOCTTY | O_CLOEXEC), line >= 0
        else { throw TestFailure("no terminal: \(String(cString: strerror(errno)))") }
        return (terminal, line)
    }

    /// The output on a terminal of this width, without its colours.
    func onTerminal(_ arguments: [String], columns: Int) throws -> String {
        let (terminal, line) = try Self.newTerminal()
        defer { close(terminal) }
        let child = try Child(
            Programs.built("appstatectl") ?? "appstatectl", arguments,
            environment: bus.environment.merging(["COLUMNS": "\(columns)", "TERM": "xterm", "NO_COLOR": nil])
            {
                $1
            }, descriptors: [STDOUT_FILENO: line])
        // The terminal ends with the program.
        close(line)
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while case let count = read(terminal, &buffer, buffer.count), count > 0 {
            bytes += buffer.prefix(count)
        }
        let status = try child.waitForExit()
        guard status == .exited(0) else { throw TestFailure("\(status): \(child.errors)") }
        return String(decoding: bytes, as: UTF8.self).replacingOccurrences(of: "\r\n", with: "\n")
            .replacingOccurrences(of: "\u{1B}\\[[0-9;]*m", with: "", options: .regularExpression)
    }

    /// What bash offers for the last of these words.
    func complete(_ script: String, _ words: [String], dataDirectory: String) throws -> String {
        let program = Programs.built("appstatectl") ?? "appstatectl"
        let directory = URL(fileURLWithPath: program).deletingLastPathComponent().path
        let code = """
            PATH=$1:$PATH; source "$2"; shift 2
            COMP_WORDS=(appstatectl "$@"); COMP_CWORD=$#; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
            _appstatectl appstatectl "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"; printf '%s\\n' "${COMPREPLY[@]}"
            """
        let child = try Child(
            "bash", ["-c", code, "bash", directory, script] + words,
            environment: bus.environment.merging(
                ["XDG_DATA_HOME": dataDirectory, "XDG_DATA_DIRS": "/nonexistent"]) { $1 })
        guard try child.waitForExit() == .exited(0) else { throw TestFailure(child.errors) }
        return child.output
    }

    func json(_ arguments: String...) throws -> Any {
        let ended = try run(arguments, environment: [:])
        guard ended.status == .exited(0) else {
            throw TestFailure("\(arguments): \(ended.status): \(ended.errors)")
        }
        return try JSONSerialization.jsonObject(with: Data(ended.output.utf8))
    }

    func state(_ name: String) throws -> String? {
        (try json("show", "--json", name) as? [String: Any])?["State"] as? String
    }
}

extension String {
    /// Whether it contains anything, except line ends, that controls a terminal or changes the text direction.
    fileprivate var isStrange: Bool {
        unicodeScalars.contains {
            ($0 != "\n" && $0.properties.generalCategory == .control) || $0.properties.isBidiControl
                || $0 == "\u{2028}" || $0 == "\u{2029}"
        }
    }
}

extension Bus {
    /// Calls the daemon.
    fileprivate func tell(
        _ path: String, _ interface: String, _ member: String, _ body: (borrowing Message) throws -> Void
    ) throws {
        let message = try newCall(
            destination: "org.appstate1", path: path, interface: "org.appstate1." + interface, member: member)
        try body(message)
        _ = try call(message, timeout: 300_000_000)
    }
}

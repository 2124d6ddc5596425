import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Two machines on one: a bus, a daemon and a user's directories for each, and ssh(1) between them.
@Suite(
    "Handoff", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing),
    .enabled(if: SecureShell.isAvailable, Comment(rawValue: SecureShell.whatIsMissing)),
    .enabled(
        if: Programs.built("appstatectl") != nil && Programs.built("appstate-session") != nil,
        "needs appstatectl built beside the tests"))
struct HandoffTests {
    private static let type = "org.example.editing"
    private static let tools = URL(fileURLWithPath: Programs.built("appstatectl") ?? "/")
        .deletingLastPathComponent().path

    private typealias Result = (output: String, errors: String, status: Child.Ending)

    /// A machine with a session agent, and LibraryActor's desktop entry.
    private final class Machine {
        let theatre: Theatre
        let home: String
        private let agent: Child
        private let ready: NotifySocket

        /// - Parameter types: what the entry declares.
        init(types: String = "\(HandoffTests.type);") throws {
            theatre = try Theatre()
            home = theatre.bus.directory + "/home"
            try FileManager.default.createDirectory(
                atPath: home + "/.local/share/applications", withIntermediateDirectories: true)
            try """
            [Desktop Entry]
            Type=Application
            Name=Library Actor
            Exec="\(Programs.built("LibraryActor") ?? "LibraryActor")" --record "\(home)/record" %U
            X-AppState-ActivityTypes=\(types)

            """.write(
                toFile: home + "/.local/share/applications/org.example.LibraryActor.desktop",
                atomically: true, encoding: .utf8)
            ready = try NotifySocket(in: theatre.bus.directory + "/agent")
            let display: [String: String?] = [
                "DISPLAY": nil, "WAYLAND_DISPLAY": nil, "NOTIFY_SOCKET": ready.path, "SWAYSOCK": nil,
                "DBUS_SESSION_BUS_ADDRESS": nil, "XDG_RUNTIME_DIR": nil,
            ]
            agent = try Child(
                Programs.built("appstate-session") ?? "appstate-session", ["--launch-only", "--verbose"],
                environment: theatre.bus.environment
                    .merging(Self.directories(below: home).mapValues { $0 }) { $1 }
                    .merging(display) { $1 })
            try ready.wait(for: "READY=1", from: agent)
        }

        /// The user's.
        private var directories: [String: String] { Self.directories(below: home) }

        private static func directories(below home: String) -> [String: String] {
            [
                "HOME": home, "XDG_DATA_HOME": home + "/.local/share", "XDG_DATA_DIRS": "/nonexistent",
                "XDG_CONFIG_HOME": home + "/.config", "XDG_STATE_HOME": home + "/.local/state",
            ]
        }

        /// The variables of a session of ssh.
        var session: [String: String] {
            directories.merging([
                "PATH": "\(HandoffTests.tools):/usr/bin:/bin", "DBUS_SYSTEM_BUS_ADDRESS": theatre.bus.address,
            ]) { $1 }
        }

        func appstatectl(
            _ arguments: String..., input: String? = nil, environment: [String: String?] = [:]
        ) throws -> Result {
            try run(arguments, input: input, environment: environment)
        }

        func run(
            _ arguments: [String], input: String? = nil, environment: [String: String?] = [:]
        ) throws -> Result {
            let own = theatre.bus.environment.merging(directories.mapValues { $0 }) { $1 }
            var command = [Programs.built("appstatectl") ?? "appstatectl"] + arguments
            if let input {
                let file = home + "/input"
                try input.write(toFile: file, atomically: true, encoding: .utf8)
                command = ["sh", "-c", "exec \"$@\" <'\(file)'", "sh"] + command
            }
            // Without a terminal, ssh cannot ask for anything.
            let child = try Child(
                "setsid", ["--wait"] + command, environment: own.merging(environment) { $1 })
            let status = try child.waitForExit()
            return (child.output, child.errors, status)
        }

        /// What the application was told, as LibraryActor records it.
        private var record: [String] {
            ((try? String(contentsOfFile: home + "/record", encoding: .utf8)) ?? "").split(separator: "\n")
                .map(
                    String.init)
        }

        /// How often the application was told to continue a note.
        func count(of note: String) -> Int {
            record.count { $0.hasPrefix("told continue ") && $0.hasSuffix(" \(HandoffTests.type) \(note)") }
        }

        func expect(_ note: String, _ times: Int = 1) throws {
            try theatre.wait("\(note) to be continued") { count(of: note) >= times }
            #expect(count(of: note) == times)
        }

        var opened: [String] { record.filter { $0.hasPrefix("told open ") } }
    }

    /// Two machines; on the first, LibraryActor is in front.
    private struct Stage {
        let here: Machine
        let there: Machine
        let player: Player
        let shell: SecureShell

        init(types: String = "\(HandoffTests.type);") throws {
            here = try Machine()
            there = try Machine(types: types)
            let directory = there.theatre.bus.directory + "/ssh"
            mkdir(directory, 0o700)
            shell = try SecureShell(in: directory, environment: there.session)
            player = try Player(here.theatre)
            try player.wait(for: "willEnterForeground")
            try here.theatre.setFocus(player.pid)
        }

        /// The user writes a note.
        func write(_ note: String) throws {
            try player.ask("activity \(HandoffTests.type) \(note)")
            try here.theatre.wait("\(note) to be announced") {
                try here.appstatectl("activity").output.contains(note)
            }
        }

        func handoff(_ arguments: String...) throws -> Result {
            try here.run(["handoff"] + arguments, environment: shell.environment)
        }
    }

    @Test("what is written on one machine is continued on the other, and fetched from there")
    func handoff() throws {
        let stage = try Stage()
        try stage.write("first")
        let sent = try stage.handoff("there")
        #expect(
            sent.status == .exited(0) && sent.output == "there continues it in org.example.LibraryActor\n")
        try stage.there.expect("first")
        // The user wants it once more, unchanged.
        #expect(try stage.handoff("there").status == .exited(0))
        try stage.there.expect("first", 2)
        // The running one is told, and opens the file first.
        try "a file".write(toFile: stage.here.home + "/A b.txt", atomically: true, encoding: .utf8)
        try stage.write("second")
        #expect(try stage.handoff("--with", stage.here.home + "/A b.txt", "there").status == .exited(0))
        try stage.there.expect("second")
        let copy = stage.there.home + "/Downloads/A b.txt"
        #expect(try String(contentsOfFile: copy, encoding: .utf8) == "a file")
        #expect(stage.there.opened.last?.hasSuffix("/Downloads/A%20b.txt") == true)

        // The other way round: now the application there is this side.
        let back = try SecureShell(
            in: try Self.directory("back", in: stage), environment: stage.here.session)
        let fetched = try stage.there.appstatectl("handoff", "--from", "here", environment: back.environment)
        #expect(fetched.status == .exited(0), "\(fetched.errors)")
        try stage.there.expect("second", 2)
    }

    private static func directory(_ name: String, in stage: Stage) throws -> String {
        let directory = stage.here.theatre.bus.directory + "/" + name
        mkdir(directory, 0o700)
        return directory
    }

    @Test("wherever the link is cut, the user is told, and nothing is lost or delivered twice")
    func cut() throws {
        let stage = try Stage()
        // The note takes much longer than the handshake.
        let note = { (number: Int) in "note\(number)-" + String(repeating: "x", count: 20_000) }
        try stage.write(note(0))
        #expect(try stage.handoff("there").status == .exited(0))
        let (up, down) = try stage.shell.totals()
        let moments: [(up: Int?, down: Int?)] = [
            (up / 20, nil), (up / 3, nil), (up / 2, nil), (up * 9 / 10, nil), (up - 200, nil),
            (nil, down / 3),
            (nil, down * 3 / 4), (nil, down - 250), (nil, down - 100), (nil, down - 1),
        ]
        var failures = 0
        for (number, moment) in moments.enumerated() {
            try stage.write(note(number + 1))
            try stage.shell.link(cutAfter: moment.up, down: moment.down)
            let first = try stage.handoff("there")
            try stage.shell.link()
            if first.status != .exited(0) {
                failures += 1
                #expect(first.status == .exited(5), "\(moment): \(first.errors)")
                #expect(first.errors.contains("repeat the command"), "\(first.errors)")
                let second = try stage.handoff("there")
                #expect(second.status == .exited(0), "\(moment): \(second.errors)")
            }
            try stage.there.expect(note(number + 1))
        }
        #expect(failures >= 8)
        for number in 0...moments.count { #expect(stage.there.count(of: note(number)) == 1) }
    }

    @Test("a type that only a rule declares is continued, and one that nobody declares is refused")
    func types() throws {
        let stage = try Stage(types: "org.example.reading;")
        try stage.write("note")
        let refused = try stage.handoff("there")
        #expect(refused.status == .exited(7))
        #expect(
            refused.errors
                == "appstatectl: no application on there continues activities of the type \(Self.type)\n")
        let rule = try stage.there.appstatectl("rule", "org.example.lib*", "ActivityTypes=\(Self.type)")
        #expect(rule.status == .exited(0), "\(rule.errors)")
        #expect(try stage.handoff("there").status == .exited(0))
        try stage.there.expect("note")
    }

    @Test("each thing that can be wrong with the other machine has a sentence and an exit status")
    func failures() throws {
        let stage = try Stage()
        try stage.write("note")
        func fails(_ status: Int32, _ words: String, _ host: String = "there") throws {
            let result = try stage.handoff(host)
            #expect(result.status == .exited(status), "\(result.errors)")
            #expect(result.errors.contains(words), "\(result.errors)")
            #expect(result.errors.split(separator: "\n").count == 1, "\(result.errors)")
        }
        try fails(5, "\(SecureShell.deadHost) cannot be reached: ", SecureShell.deadHost)
        #expect(try stage.handoff("-oProxyCommand=touch", "x").status == .exited(64))
        try stage.there.theatre.endDaemon(SIGTERM)
        try fails(4, "on there: appstated is not running")
        try stage.there.theatre.startDaemon()

        // What the session has before the real one: an older appstatectl, and then none.
        let old = stage.there.home + "/old"
        mkdir(old, 0o755)
        try "#!/bin/sh\necho \"appstatectl: there is no command\" >&2\nexit 64\n"
            .write(toFile: old + "/appstatectl", atomically: true, encoding: .utf8)
        chmod(old + "/appstatectl", 0o755)
        for (path, words) in [
            (old + ":/usr/bin:/bin", "is older"), ("/usr/bin:/bin", "there is no appstatectl"),
        ] {
            let directory = try Self.directory("path\(words.count)", in: stage)
            let shell = try SecureShell(
                in: directory, environment: stage.there.session.merging(["PATH": path]) { $1 })
            let result = try stage.here.appstatectl("handoff", "there", environment: shell.environment)
            #expect(result.status == .exited(8) && result.errors.contains(words), "\(result.errors)")
        }
        try stage.shell.refuseKeys()
        try fails(6, "there refuses the login: ")
        #expect(stage.there.count(of: "note") == 0)
    }

    @Test("the activity is that of the application in front, and only its user and root read it")
    func front() throws {
        let stage = try Stage()
        #expect(try stage.here.appstatectl("activity").errors.contains("has not announced"))
        try stage.write("secret")
        let json = try stage.here.appstatectl("activity", "--json").output
        #expect(json.contains(#""app_id":"org.example.LibraryActor","type":"\#(Self.type)""#))
        #expect(json.contains(#""info":{"note":{"type":"s","data":"secret"}}"#))
        #expect(try stage.here.appstatectl("status").output.contains("secret") == false)
        try stage.here.theatre.setFocus(0)
        #expect(try stage.here.appstatectl("activity").status == .exited(3))
        #expect(try stage.here.appstatectl("activity", "org.example.LibraryActor").output.contains("secret"))
        guard getuid() == 0 else { return }
        try stage.here.theatre.setFocus(stage.player.pid)
        let other = try Child(
            "busctl",
            [
                "--address=\(stage.here.theatre.bus.address)", "get-property", BusNames.service,
                BusNames.root,
                BusNames.manager, "FrontActivity",
            ], uid: 65_534)
        #expect(try other.waitForExit() == .exited(0), "\(other.errors)")
        #expect(other.output == "(osa{sv}) \"/\" \"\" 0\n")
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Packages outside of this one that depend on it for the library, as their authors write them.
@Suite(
    "A package that depends on the library",
    .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing),
    .enabled(if: Programs.inPath("swift") != nil, "needs swift in PATH"))
struct ProjectTests {
    /// The directory of a package, which is removed with this object.
    private final class Project {
        private let scratch: Scratch
        var directory: String { scratch.path }

        init() throws { scratch = try Scratch("project") }

        func write(_ text: String, to file: String) throws { try scratch.write(text, to: file) }

        /// Builds the package like any user, with none of our own switches set. Returns the path of the program.
        func build(_ product: String) throws -> String {
            let command = ["build", "--package-path", directory, "--product", product]
            let build = try Child("swift", command, environment: ["APPSTATED_OPTIMIZED_CORE": nil])
            let ending = try build.waitForExit(timeout: 1_800_000)
            #expect(ending == .exited(0), "\(build.output)\(build.errors)")
            #expect(!build.output.contains("warning:"), "\(build.output)")
            return "\(directory)/.build/debug/\(product)"
        }
    }

    /// The manifest of a package whose application has this name.
    private static func manifest(_ name: String) -> String {
        """
        // swift-tools-version:6.0
        import PackageDescription

        let package = Package(
            name: "\(name)",
            dependencies: [.package(name: "appstated", path: "\(Programs.root)")],
            targets: [
                .executableTarget(
                    name: "\(name)", dependencies: [.product(name: "AppState", package: "appstated")])
            ],
            swiftLanguageModes: [.v6])
        """
    }

    /// The Swift code of the README.
    private static func readme() throws -> String {
        let text = try String(contentsOfFile: Programs.root + "/README.md", encoding: .utf8)
        let block = try #require(text.components(separatedBy: "```swift\n").dropFirst().first)
        return try #require(block.components(separatedBy: "```\n").first)
    }

    @Test(
        "the README's application builds, offers its activity, uploads its file, and has its scenes again after a kill",
        .enabled(if: Programs.built("appstate-transfer") != nil, "needs appstate-transfer built beside"))
    func readmeApplication() throws {
        let project = try Project()
        let server = try Self.server()
        let address = "http://127.0.0.1:\(server.port)"
        let source = try Self.readme()
            .replacingOccurrences(of: "/home/me/notes", with: "\(project.directory)/notes")
            .replacingOccurrences(of: "https://example.org", with: address)
        try project.write(Self.manifest("Notes"), to: "Package.swift")
        try project.write(source, to: "Sources/Notes/Notes.swift")
        try project.write("milk", to: "notes")
        let program = try project.build("Notes")
        // The end of the upload resumes it; a grace period later it is suspended again.
        let theatre = try Theatre(grace: "5")
        let (session, environment) = try Self.session(theatre)
        let transfers = try Self.transfers(environment, on: session, theatre)
        let notes = try Child(program, environment: environment)
        let path = try registration(of: notes, in: theatre)
        try theatre.setFocus(notes.pid)
        try theatre.wait(for: path, toBe: "active")
        try theatre.call(path, BusNames.application, "Open") { message in
            try message.append(strings: ["note:milk"])
            try message.appendDictionary([("scene", .string("new"))])
        }
        try wait(for: "note:milk", of: "org.example.note", in: path, theatre)
        try theatre.setMinimized(notes.pid, true)
        try theatre.wait("the upload") {
            let stored = try Self.stored(at: address)
            try stored.waitForExit()
            return stored.output.contains(Self.sum)
        }
        try theatre.wait(for: path, toBe: "suspended")
        notes.kill(SIGKILL)
        try notes.waitForExit()
        try theatre.waitForRemoval(of: path)

        let next = try Child(program, environment: environment)
        let nextPath = try registration(of: next, in: theatre)
        try wait(for: "note:milk", of: "org.example.note", in: nextPath, theatre)
        withExtendedLifetime((session, server.process, transfers)) {}
    }

    /// A session bus, and the environment of the applications on it.
    private static func session(_ theatre: Theatre) throws -> (PrivateBus, [String: String?]) {
        let session = try PrivateBus(
            policy: "<policy context=\"default\"><allow own=\"*\"/><allow send_destination=\"*\"/></policy>")
        let own = [
            "DBUS_SESSION_BUS_ADDRESS": session.address, "XDG_STATE_HOME": session.directory,
            "XDG_CACHE_HOME": session.directory,
        ]
        return (session, theatre.bus.environment.mapValues { $0 }.merging(own) { $1 })
    }

    /// The program of background transfers, when it serves its name.
    private static func transfers(
        _ environment: [String: String?], on session: PrivateBus, _ theatre: Theatre
    ) throws -> Child {
        let transfers = try Child(
            Programs.built("appstate-transfer") ?? "", ["--attempts", "100"], environment: environment)
        let client = try Bus.open(address: session.address)
        try theatre.wait("the transfer program") { try client.owner(of: TransferNames.service) != nil }
        return transfers
    }

    /// A program that prints the hash of the notes that were uploaded.
    private static func stored(at address: String) throws -> Child {
        try Child(
            Programs.python,
            [
                "-c", "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())",
                "\(address)/put/notes",
            ])
    }

    private static let hasGTK = Programs.inPath("pkg-config").map { program in
        (try? Child(program, ["--exists", "gtk4"]).waitForExit()) == .exited(0)
    }

    @Test(
        "the example Notes keeps its text, is uploaded while suspended, opens files and frees memory when asked",
        .enabled(if: hasGTK == true, "needs GTK 4's headers: scripts/setup test"),
        .enabled(if: Screen.isAvailable, Screen.whatIsMissing),
        .enabled(if: Programs.built("appstate-transfer") != nil, "needs appstate-transfer built beside"))
    func notes() throws {
        try live()
    }

    /// The example Notes, which several tests run.
    private static let notes = Result { try buildNotes() }

    /// A theatre, and a copy of Notes: a start of the same file by another test would resume a suspended application.
    private static func theatre() throws -> (Theatre, notes: String) {
        // First, because a bus does not wait for a client as long as this takes.
        let built = try notes.get()
        let theatre = try Theatre()
        let copy = theatre.bus.directory + "/Notes"
        try Programs.copy(built, to: copy)
        return (theatre, copy)
    }

    private static func buildNotes() throws -> String {
        let source = Programs.root + "/Examples/Notes"
        let project = try Project()
        // Until the end of the tests.
        kept = project
        atexit { ProjectTests.kept = nil }
        for file in ["Sources/CGTK/module.modulemap", "Sources/CGTK/shim.h"]
            + ["Notes", "Window", "Files", "Life"].map({ "Sources/Notes/\($0).swift" })
        {
            try project.write(try String(contentsOfFile: "\(source)/\(file)", encoding: .utf8), to: file)
        }
        try project.write(
            try String(contentsOfFile: source + "/Package.swift", encoding: .utf8)
                .replacingOccurrences(of: "\"../..\"", with: "\"\(Programs.root)\""), to: "Package.swift")
        return try project.build("Notes")
    }

    private nonisolated(unsafe) static var kept: Project?

    /// The path of a program. Its window may be there first.
    private func registration(of program: Child, in theatre: Theatre) throws -> String {
        try theatre.wait("its registration") { try theatre.path(of: program.pid) != nil }
        return try #require(try theatre.path(of: program.pid))
    }

    /// The life of Notes, with a window, and its next launches.
    private func live() throws {
        let (theatre, program) = try Self.theatre()
        let screen = try Screen(theatre)
        // Nobody answers there before Notes is suspended.
        let port = try Self.server().port
        let url = "http://127.0.0.1:\(port)/notes"
        let (session, own) = try Self.session(theatre)
        let environment = own.merging(screen.environment) { $1 }.merging(["NOTES_SERVER": url]) { $1 }
        let transfers = try Self.transfers(environment, on: session, theatre)
        let notes = try Child(program, environment: environment)
        let window = try screen.window(of: notes.pid)
        let path = try registration(of: notes, in: theatre)
        try theatre.wait(for: path, toBe: "active")
        _ = try screen.run("xdotool", ["type", "milk"])
        try wait(for: "milk", in: path, theatre)
        _ = try screen.run("xdotool", ["windowminimize", window])
        try theatre.wait(for: path, toBe: "suspended")
        #expect(!notes.errors.contains("upload"), "\(notes.errors)")
        let server = try Self.server(port)
        // It is resumed for this.
        try notes.waitForLine(containing: "uploaded to \(url)")
        let stored = try Self.stored(at: "http://127.0.0.1:\(port)")
        try stored.waitForLine(containing: Self.sum)
        #expect(notes.errors.components(separatedBy: "application didEnterBackground").count == 2)
        notes.kill(SIGKILL)
        try notes.waitForExit()
        try theatre.waitForRemoval(of: path)

        let next = try Child(program, environment: environment)
        try next.waitForLine(containing: "restored milk")
        _ = try screen.window(of: next.pid)
        let nextPath = try registration(of: next, in: theatre)
        let file = session.directory + "/bread"
        try "bread".write(toFile: file, atomically: true, encoding: .utf8)
        try theatre.call(nextPath, BusNames.application, "Open") { message in
            try message.append(strings: [FileURL.url(of: file)])
            try message.appendDictionary([])
        }
        try wait(for: "milkbread", in: nextPath, theatre)
        try theatre.terminate(nextPath, force: false)
        #expect(try next.waitForExit() == .signalled(SIGTERM))
        try theatre.waitForRemoval(of: nextPath)

        // The session ends: systemd sends SIGTERM.
        let loggedOut = try Child(program, environment: environment)
        let loggedOutPath = try registration(of: loggedOut, in: theatre)
        try theatre.wait(for: loggedOutPath, toBe: "active")
        _ = try screen.run("xdotool", ["key", "ctrl+End", "x"])
        try wait(for: "milkbreadx", in: loggedOutPath, theatre)
        loggedOut.kill(SIGTERM)
        #expect(try loggedOut.waitForExit() == .signalled(SIGTERM))
        try theatre.waitForRemoval(of: loggedOutPath)

        // The user closes its window: it ends by itself, with its text saved.
        let last = try Child(program, environment: environment)
        let lastWindow = try screen.window(of: last.pid)
        let lastPath = try registration(of: last, in: theatre)
        _ = try screen.run("wmctrl", ["-i", "-c", lastWindow])
        #expect(try last.waitForExit() == .exited(0), "\(last.errors)")
        try theatre.waitForRemoval(of: lastPath)
        let reopened = try Child(program, environment: environment)
        try reopened.waitForLine(containing: "restored milkbreadx")
        let state = try told(program, environment, on: screen)
        try late(program, environment, on: screen, state)
        withExtendedLifetime((session, server.process, transfers)) {}
    }

    /// printf milk | sha256sum
    private static let sum = "8825e76530f87ff5c737b3254c6936bc0a90bba3a10a91bbba739268208d378a"

    /// The server of server.py.
    private static func server(_ port: String = "0") throws -> (process: Child, port: String) {
        let server = try Child(Programs.python, [Programs.root + "/Tests/Transfers/server.py", port])
        return (server, String(try server.waitForLine(containing: "port").dropFirst("port ".count)))
    }

    /// Waits until this is what the user does in Notes.
    private func wait(
        for text: String, of type: String = "org.example.Notes.editing", in path: String, _ theatre: Theatre
    ) throws {
        try theatre.wait("\(text) to be announced") {
            try theatre.property("UserActivity", of: path)
                == .structure([.string(type), .dictionary(["text": .string(text)])])
        }
    }

    /// What Notes does with an edit, a memory warning and a URL. Returns the state that it saves then.
    private func told(
        _ program: String, _ environment: [String: String?], on screen: Screen
    ) throws -> [UInt8] {
        let daemon = try StandIn()
        let file = daemon.bus.directory + "/brown bröd"
        try "bread".write(toFile: file, atomically: true, encoding: .utf8)
        let notes = try Child(
            program, environment: environment.merging(daemon.bus.environment.mapValues { $0 }) { $1 })
        try daemon.launch()
        let window = try screen.window(of: notes.pid)
        _ = try screen.run("xdotool", ["windowactivate", "--sync", window, "type", "butter"])
        try daemon.wait("the save after the edit") { daemon.saved.map(text)?.hasSuffix("butter") == true }
        try daemon.tell(.didReceiveMemoryWarning) { try $0.append("warning") }
        try daemon.tell(.openURLs) { message in
            try message.append(strings: [FileURL.url(of: file)])
            try message.appendDictionary([])
        }
        try daemon.tell(.didEnterBackground, serial: 1)
        try notes.waitForLine(containing: "dropped the earlier versions")
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [1] }
        #expect(daemon.saved.map(text)?.hasSuffix("butterbread") == true)
        return try #require(daemon.saved)
    }

    /// What the user types before Notes is registered is still there after the state of an earlier run is restored.
    private func late(
        _ program: String, _ environment: [String: String?], on screen: Screen, _ state: [UInt8]
    ) throws {
        let daemon = try StandIn()
        daemon.refusals["Register"] = [MethodError(ErrorName.accessDenied.rawValue, "not now")]
        daemon.stored = state
        let notes = try Child(
            program, environment: environment.merging(daemon.bus.environment.mapValues { $0 }) { $1 })
        try daemon.wait("the refusal") { daemon.order == ["Register"] }
        let window = try screen.window(of: notes.pid)
        _ = try screen.run("xdotool", ["windowactivate", "--sync", window, "type", "tea"])
        // A second after the last edit, it cannot save.
        try notes.waitForLine(containing: "save: ")
        daemon.state = "inactive"
        try daemon.launch([("restorable", .bool(true))])
        try daemon.sendToBackground(1)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [1] }
        let saved = try #require(daemon.saved.map(text))
        #expect(saved.contains("tea") && saved.hasSuffix("butterbread"))
    }

    // MARK: Handoff

    @Test(
        "the note in front of Notes is continued in another window",
        .enabled(if: hasGTK == true, "needs GTK 4's headers: scripts/setup test"),
        .enabled(if: Screen.isAvailable, Screen.whatIsMissing),
        .enabled(if: Programs.built("appstatectl") != nil, "needs appstatectl built beside the tests"))
    func handoff() throws {
        let (theatre, program) = try Self.theatre()
        let data = theatre.bus.directory + "/data"
        try FileManager.default.createDirectory(
            atPath: data + "/applications", withIntermediateDirectories: true)
        try """
        [Desktop Entry]
        Type=Application
        Name=Notes
        Exec=\(program)
        X-AppState-ActivityTypes=org.example.Notes.editing;

        """.write(
            toFile: data + "/applications/org.example.Notes.desktop", atomically: true, encoding: .utf8)
        let own = ["XDG_DATA_HOME": data, "XDG_STATE_HOME": data]
        let screen = try Screen(theatre, environment: own)
        let environment = theatre.bus.environment.mapValues { $0 }.merging(screen.environment) { $1 }
            .merging(own.mapValues { $0 }) { $1 }
        let notes = try Child(program, environment: environment)
        try NotesLife.wait(for: "active", ["active"], of: notes, in: theatre)
        _ = try screen.run("xdotool", ["type", "milk"])
        let path = try registration(of: notes, in: theatre)
        try wait(for: "milk", in: path, theatre)
        let tool = Programs.built("appstatectl") ?? ""
        let handoff = try Child(
            "sh", ["-c", "'\(tool)' activity --json | '\(tool)' continue"], environment: environment)
        #expect(try handoff.waitForExit() == .exited(0), "\(handoff.errors)")
        try NotesLife.wait(for: "active", ["inactive", "active"], of: notes, in: theatre)
        _ = try screen.run("xdotool", ["key", "ctrl+End", "x"])
        try wait(for: "milkx", in: path, theatre)
        #expect(NotesLife(notes).flaws == [])
    }

    // MARK: Scenes

    @Test(
        "two windows of Notes on X11: each is a scene, in one order with the application, and both come back",
        .enabled(if: hasGTK == true, "needs GTK 4's headers: scripts/setup test"),
        .enabled(if: Screen.isAvailable, Screen.whatIsMissing))
    func twoWindows() throws {
        let (theatre, program) = try Self.theatre()
        let screen = try Screen(theatre)
        let environment = theatre.bus.environment.mapValues { $0 }.merging(screen.environment) { $1 }
        let notes = try Child(program, environment: environment)
        func expect(_ application: String, _ scenes: String...) throws {
            try NotesLife.wait(for: application, scenes, of: notes, in: theatre)
        }
        let first = try screen.window(of: notes.pid)
        try expect("active", "active")
        _ = try screen.run("xdotool", ["type", "milk"])
        _ = try screen.run("xdotool", ["key", "ctrl+n"])
        try expect("active", "inactive", "active")
        _ = try screen.run("xdotool", ["type", "bread"])
        let all = try screen.windows(of: notes.pid, atLeast: 2)
        let second = try #require(all.first { $0 != first })
        _ = try screen.run("xdotool", ["windowactivate", first])
        try expect("active", "active", "inactive")
        _ = try screen.run("xdotool", ["windowminimize", second])
        try expect("active", "active", "background")
        let other = try screen.other()
        try expect("inactive", "inactive", "background")
        _ = try screen.run("xdotool", ["windowminimize", first])
        try expect("background", "background", "background")
        let path = try registration(of: notes, in: theatre)
        try theatre.wait(for: path, toBe: "suspended")
        _ = try screen.run("xdotool", ["windowactivate", second])
        try expect("active", "background", "active")
        _ = try screen.run("xdotool", ["windowactivate", first])
        try expect("active", "active", "inactive")
        // It is killed without notice, and comes back with both.
        _ = try screen.run("xdotool", ["windowminimize", first, "windowminimize", second])
        try theatre.wait(for: path, toBe: "suspended")
        notes.kill(SIGKILL)
        try notes.waitForExit()
        #expect(NotesLife(notes).flaws == [])
        try theatre.waitForRemoval(of: path)

        let next = try Child(program, environment: environment)
        try next.waitForLine(containing: "restored milk")
        try next.waitForLine(containing: "restored bread")
        let windows = try screen.windows(of: next.pid, atLeast: 2)
        #expect(NotesLife(next).scenes == NotesLife(notes).scenes)
        // One is closed for good, the other one with the application.
        _ = try screen.run("wmctrl", ["-i", "-c", windows[0]])
        try theatre.wait("the end of a scene") { NotesLife(next).states.count == 1 }
        let left = try screen.window(of: next.pid)
        _ = try screen.run("wmctrl", ["-i", "-c", left])
        #expect(try next.waitForExit() == .exited(0), "\(next.errors)")
        #expect(NotesLife(next).flaws == [])
        withExtendedLifetime(other) {}
    }

    /// The text in saved state: the last string.
    private func text(_ state: [UInt8]) -> String { String(decoding: state, as: UTF8.self) }
}

/// The life of Notes as it logs it: what is wrong with the order of its callbacks, and the states that follow.
private struct NotesLife {
    private(set) var flaws: [String] = []
    private var application = "launching"
    /// The ids of the scenes, in order, also of those that are gone.
    private(set) var scenes: [String] = []
    private var known: [String: String] = [:]
    /// The states of the scenes that there are, in order.
    var states: [String] { scenes.compactMap { known[$0] } }

    init(_ notes: Child) {
        _ = notes.advance()
        for line in notes.errors.split(separator: "\n") {
            let words = line.split(separator: " ").map(String.init)
            switch words.first {
            case "application" where words.count == 2: move(to: words[1])
            case "scene" where words.count == 3: move(words[1], to: words[2])
            default: break
            }
        }
    }

    /// The states between which a callback leads.
    private static let edges = [
        "willEnterForeground": (["background", "launching"], "inactive"),
        "didBecomeActive": (["inactive"], "active"),
        "willResignActive": (["active"], "inactive"),
        "didEnterBackground": (["inactive", "launching"], "background"),
    ]

    private mutating func move(to name: String) {
        guard let (from, to) = Self.edges[name] else { return }
        if !from.contains(application) { flaws.append("application \(application) \(name)") }
        application = to
        let isWrong = states.contains {
            $0 == "active" ? to != "active" : $0 == "inactive" && to == "background"
        }
        // On the way up its scenes come later, on the way down they have gone before.
        if isWrong || name == "willEnterForeground" && states.contains(where: { $0 != "background" }) {
            flaws.append("application \(name) with \(states)")
        }
    }

    private mutating func move(_ id: String, to name: String) {
        if name == "willConnect" {
            scenes.append(id)
            known[id] = "background"
        } else if name == "didDisconnect" {
            if known[id] != "background" { flaws.append("scene \(known[id] ?? "gone") \(name)") }
            known[id] = nil
        } else if let (from, to) = Self.edges[name] {
            if !from.contains(known[id] ?? "gone") { flaws.append("scene \(known[id] ?? "gone") \(name)") }
            known[id] = to
            if to == "active" && application != "active"
                || name == "willEnterForeground" && !["inactive", "active"].contains(application)
            {
                flaws.append("scene \(name) in an application that is \(application)")
            }
        }
    }

    static func wait(
        for application: String, _ scenes: [String], of notes: Child, in theatre: Theatre
    ) throws {
        do {
            try theatre.wait("\(application) \(scenes)") {
                let life = NotesLife(notes)
                return life.application == application && life.states == scenes
            }
        } catch {
            throw TestFailure("\(error)\n\(notes.errors)")
        }
    }
}

import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

@testable import Windows

/// The real agent starts programs by their desktop entries on behalf of a stand-in for the daemon.
@Suite(
    "Launches", .serialized,
    .enabled(if: Station.isAvailable, Station.whatIsMissing),
    .enabled(if: Display.isAvailable, Display.whatIsMissing))
struct LaunchTests {
    private static func scene(_ arguments: [String] = []) throws -> (LaunchScene, Display) {
        let display = try Display(try #require(WindowManager.present.first))
        return (try LaunchScene(on: display.environment, arguments: arguments), display)
    }

    @Test("the agent registers itself with each new daemon, for the session that it is given")
    func registration() throws {
        let (scene, display) = try Self.scene(["--session", "c7"])
        let connection = try #require(scene.registration?.connection)
        #expect(scene.registration?.session == "c7")
        scene.endDaemon()
        try scene.startDaemon()
        try scene.waitForRegistration()
        #expect(scene.registration?.connection == connection)
        withExtendedLifetime(display) {}
    }

    @Test("the agent's methods match their file, including argument names")
    func contract() throws {
        let (scene, display) = try Self.scene()
        let root = URL(fileURLWithPath: Programs.root)
        for (name, count) in [(BusNames.launcher, 6), (BusNames.presenter, 2)] {
            let file = root.appendingPathComponent("dbus/\(name).xml")
            let documented = Self.methods(of: name, in: try String(contentsOf: file, encoding: .utf8))
            #expect(documented.count == count)
            let exported = Self.methods(of: name, in: try scene.introspection())
            #expect(exported == documented)
        }
        withExtendedLifetime(display) {}
    }

    /// The methods of an interface: of each, the words of its elements. Attributes have any order.
    private static func methods(of name: String, in text: String) -> Set<[String]> {
        let begin = text.components(separatedBy: "<interface name=\"\(name)\">").last ?? ""
        let interface = begin.components(separatedBy: "</interface>").first ?? ""
        let methods = interface.components(separatedBy: "</method>").map { method -> [String] in
            method.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
                .filter { $0.hasPrefix("<method ") || $0.hasPrefix("<arg ") }
                .map { $0.split(whereSeparator: { " />".contains($0) }).sorted().joined(separator: " ") }
        }
        return Set(methods.filter { !$0.isEmpty })
    }

    @Test(
        "the program starts only when it is allowed to, as the same process, with all its arguments"
    )
    func proceed() throws {
        let (scene, display) = try Self.scene()
        let (program, record) = try scene.program("editor", status: 7)
        try scene.entry(
            "org.example.Editor", "Icon=pencil",
            #"Exec="\#(program)" --caption=%c "two words" "a \\$dollar" %i 100%% %U"#)
        let url = "https://example.org/?a=1&b='2'"
        let launch = try scene.start(
            "org.example.Editor",
            [("urls", .strings(["file:///tmp/a%20b", url])), ("activation-token", .string("token-1"))])
        #expect(launch.isHeld)
        let pid = launch.process.pid
        #expect(pid > 1 && !launch.process.hasEnded)
        #expect(access(record, F_OK) != 0)
        #expect(getsid(pid) == pid)
        try scene.proceed(launch)
        let words = try scene.record(record)
        #expect(
            words == [
                "\(pid)", "cwd \(scene.system.directory)/home", "token ", "startup token-1",
                "[--caption=org.example.Editor]",
                "[two words]", "[a $dollar]", "[--icon]", "[pencil]", "[100%]", "[file:///tmp/a%20b]",
                "[\(url)]",
            ])
        try launch.process.waitForEnd()
        #expect(try scene.exit(of: launch) == "exited 7")
        // The status is kept.
        #expect(try scene.exit(of: launch) == "exited 7")
        withExtendedLifetime(display) {}
    }

    @Test("an entry that takes one file at a time is started once for each file")
    func each() throws {
        let (scene, display) = try Self.scene()
        try scene.write(
            program: scene.system.directory + "/viewer",
            "#!/bin/sh\necho \"$@\" > '\(scene.system.directory)/seen'.\"${1##*/}\"\n")
        try scene.entry("org.example.Viewer", "Exec=\(scene.system.directory)/viewer %f")
        let launch = try scene.start(
            "org.example.Viewer", [("urls", .strings(["file:///tmp/one", "file:///tmp/two"]))])
        let (one, two) = (scene.system.directory + "/seen.one", scene.system.directory + "/seen.two")
        #expect(access(one, F_OK) != 0 && access(two, F_OK) != 0)
        try scene.proceed(launch)
        #expect(try scene.record(one) == ["/tmp/one"])
        #expect(try scene.record(two) == ["/tmp/two"])
        withExtendedLifetime(display) {}
    }

    @Test("a started program outlives the agent")
    func outlive() throws {
        let (scene, display) = try Self.scene()
        let (program, record) = try scene.program("sleeper", then: "exec sleep 1000 > /dev/null 2>&1")
        try scene.entry("org.example.Sleeper", "Exec=\(program)")
        let launch = try scene.start("org.example.Sleeper")
        try scene.proceed(launch)
        _ = try scene.record(record)
        scene.agent?.kill(SIGTERM)
        try scene.agent?.waitForExit()
        #expect(!launch.process.hasEnded)
        launch.process.kill(SIGKILL)
        withExtendedLifetime(display) {}
    }

    @Test("a start that cannot succeed is refused with the right error")
    func refusals() throws {
        let (scene, display) = try Self.scene()
        try scene.entry("org.example.Hidden", "Exec=true", "Hidden=true")
        try scene.entry("org.example.Try", "Exec=true", "TryExec=/nonexistent/program")
        try scene.entry("org.example.Broken", "Exec=true \"open")
        try scene.entry("org.example.Code", "Exec=true %z")
        try scene.entry("org.example.Nothing")
        try scene.entry("org.example.Missing", "Exec=/nonexistent/program")
        try scene.entry("org.example.Local", "Exec=true %f")
        func refusal(_ id: String, _ options: [(String, Variant)] = []) throws -> ErrorName? {
            let (name, text) = try scene.refusal(id, options)
            #expect(!text.isEmpty)
            return ErrorName(rawValue: name)
        }
        #expect(try refusal("org.example.None") == .noSuchApplication)
        #expect(try refusal("org.example.Hidden") == .noSuchApplication)
        #expect(try refusal("org.example.Try") == .noSuchApplication)
        #expect(try scene.refusal("org.example.Try").text.contains("/nonexistent/program"))
        #expect(try refusal("org.example.Broken") == .invalidArgs)
        #expect(try refusal("org.example.Code") == .invalidArgs)
        #expect(try refusal("org.example.Nothing") == .notSupported)
        #expect(try refusal("org.example.Missing") == .failed)
        #expect(
            try refusal("org.example.Local", [("urls", .strings(["https://example.org"]))]) == .invalidArgs)
        #expect(try refusal("../evil") == .invalidArgs)
        withExtendedLifetime(display) {}
    }

    @Test("calls of any connection but the daemon are denied")
    func strangers() throws {
        let (scene, display) = try Self.scene()
        let (program, record) = try scene.program("editor")
        try scene.entry("org.example.Editor", "Exec=\(program)")
        let launch = try scene.start("org.example.Editor")
        let stranger = try Bus.open(address: scene.system.address)
        let agent = try #require(scene.registration?.connection)
        func check<Name: MethodName>(_ method: Name, _ body: (borrowing Message) throws -> Void) throws {
            var name: String?
            do {
                _ = try LaunchScene.call(stranger, agent, method, body)
            } catch let failure as BusFailure {
                name = failure.name
            }
            #expect(name == ErrorName.accessDenied.rawValue, "\(method.rawValue)")
        }
        try check(LauncherMethod.start) { message in
            try message.append("org.example.Editor")
            try message.appendDictionary([])
        }
        for method: LauncherMethod in [.proceed, .cancel, .getExit] {
            try check(method) { try $0.append(launch.number) }
        }
        func name(_ message: borrowing Message) throws {
            try message.append("org.example.Editor")
            try message.append(UInt32(1))
        }
        try check(LauncherMethod.open) { message in
            try name(message)
            try message.appendDictionary([])
        }
        try check(PresenterMethod.present) { message in
            try name(message)
            try message.appendDictionary([])
        }
        try check(PresenterMethod.leave) { message in
            try name(message)
            try message.append(false)
        }
        #expect(!launch.process.hasEnded && access(record, F_OK) != 0)
        try scene.cancel(launch)
        withExtendedLifetime(display) {}
    }

    @Test(
        "an application that needs a terminal starts in one",
        .enabled(if: Programs.inPath("xterm") != nil, "needs xterm"))
    func terminal() throws {
        let (scene, display) = try Self.scene()
        let watch = try display.watch()
        let (program, record) = try scene.program("tool", then: "exec sleep 1000")
        try scene.entry("org.example.Tool", "Exec=\(program) \"two words\"", "Terminal=true")
        let launch = try scene.start("org.example.Tool")
        try scene.proceed(launch)
        try watch.wait("a terminal") { $0.contains { $0.appID == "XTerm" } }
        #expect(try scene.record(record).last == "[two words]")
        #expect(try watch.window("XTerm").process == launch.process.pid)
        launch.process.kill(SIGTERM)
        try launch.process.waitForEnd()
    }
}

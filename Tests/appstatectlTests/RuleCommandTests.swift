import Foundation
import Glibc
import TestSupport
import Testing

@testable import appstatectl

/// `rule` and `rules` with the user's file in every condition. They need no daemon for that.
@Suite("appstatectl rule")
struct RuleCommandTests {
    /// A directory with a configuration, removed with this object.
    private final class Home {
        private let scratch: Scratch
        let program: String
        var path: String { scratch.path }

        var file: String { path + "/appstated/session.conf" }

        init() throws {
            program = try #require(Programs.built("appstatectl"))
            scratch = try Scratch("rules")
            mkdir(path + "/appstated", 0o755)
        }

        func write(_ bytes: [UInt8]) throws {
            try Data(bytes).write(to: URL(fileURLWithPath: file))
        }

        func write(_ text: String) throws { try write(Array(text.utf8)) }

        var bytes: [UInt8]? { FileManager.default.contents(atPath: file).map { Array($0) } }

        var text: String { bytes.map { String(decoding: $0, as: UTF8.self) } ?? "" }

        func run(_ arguments: String...) throws -> (output: String, errors: String, status: Child.Ending) {
            try run(arguments)
        }

        func run(_ arguments: [String]) throws -> (output: String, errors: String, status: Child.Ending) {
            let child = try Child(
                program, arguments, environment: ["XDG_CONFIG_HOME": path, "COLUMNS": nil])
            let status = try child.waitForExit()
            return (child.output, child.errors, status)
        }
    }

    @Test("a file that cannot be read, or is too long, is left alone, and each command says so")
    func unreadable() throws {
        let home = try Home()
        let commands = [
            ["rule", "gimp", "Suspension=never"], ["rule", "--delete", "gimp"], ["rule", "gimp"], ["rules"],
        ]
        func refusals() throws -> [String] {
            try commands.map { command in
                let ended = try home.run(command)
                #expect(ended.status == .exited(1), "\(command): \(ended.errors)")
                return ended.errors
            }
        }
        mkdir(home.file, 0o755)
        #expect(
            try Set(refusals()) == ["appstatectl: \(home.file) cannot be read: it is not a regular file\n"])
        rmdir(home.file)
        symlink(home.file, home.file)
        #expect(
            try Set(refusals())
                == ["appstatectl: \(home.file) cannot be read: Too many levels of symbolic links\n"])
        unlink(home.file)
        let long = "[Application gimp]\nSuspension=never\n" + String(repeating: "#", count: 1 << 20)
        try home.write(long)
        #expect(
            try Set(refusals()) == ["appstatectl: \(home.file) cannot be read: it is longer than 1 MiB\n"])
        #expect(home.text == long)
    }

    @Test("a rule of which no line is valid is shown as such, with what is wrong")
    func invalid() throws {
        let home = try Home()
        try home.write("[Application x]\nSuspend=yes\n[Application y]\nSuspension=often\nnonsense\n")
        let shown = try home.run("rule", "Y")
        #expect(shown.status == .exited(1) && shown.output.isEmpty)
        let lines = shown.errors.split(separator: "\n")
        #expect(lines.count == 3 && lines.last == "appstatectl: [Application Y] says nothing that is valid")
        for place in ["4: Suspension=: ", "5: "] {
            #expect(lines.contains { $0.hasPrefix("\(home.file):\(place)") }, "\(shown.errors)")
        }
        try home.write("[Application y]\nSuspension=never\nSuspend=yes\n")
        let half = try home.run("rule", "y")
        #expect(half.status == .exited(0) && half.output == "Suspension=never\n")
        #expect(half.errors.contains(":3: Suspend=: "))
        #expect(try home.run("rule", "z").errors == "appstatectl: there is no rule [Application z]\n")
    }

    @Test("a rule counts as applied only if an agent reads this file and uses this bus")
    func agents() throws {
        let home = try Home()
        let program = home.path + "/appstate-session"
        try Programs.copy(try #require(Programs.inPath("sleep")), to: program)
        func warning(_ environment: [String: String?]) throws -> String {
            let agent = try Child(program, ["1000"], environment: environment)
            defer { withExtendedLifetime(agent) {} }
            return try home.run("rule", "gimp", "Suspension=never").errors
        }
        #expect(try home.run("rule", "gimp", "Suspension=never").errors.contains("is not applied yet"))
        #expect(try warning(["XDG_CONFIG_HOME": home.path + "/."]) == "")
        let otherFile = try warning(["XDG_CONFIG_HOME": home.path + "/other"])
        #expect(otherFile.contains("uses another bus or another configuration"))
        let otherBus = try warning([
            "XDG_CONFIG_HOME": home.path, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent",
        ])
        #expect(otherBus.contains("uses another bus or another configuration"))
    }

    @Test("wrong usage is answered with what is wrong, and with the usage of the command that was called")
    func usage() throws {
        let home = try Home()
        let unknown = try home.run("supsend", "org.me.One")
        #expect(unknown.status == .exited(64))
        #expect(unknown.errors == "appstatectl: there is no command \"supsend\"; did you mean suspend?\n")
        let strange = try home.run("x")
        #expect(strange.status == .exited(64) && strange.errors.contains("see appstatectl --help"))
        let help = try home.run("help", "nosuch")
        #expect(help.status == .exited(64) && help.output.isEmpty)
        #expect(help.errors.contains("there is no command \"nosuch\""))
        #expect(try home.run("help", "rule").output.contains("USAGE: appstatectl rule "))
        #expect(try home.run("help").output.contains("OVERVIEW"))
        let both = try home.run("toggle", "--focused", "1")
        #expect(both.status == .exited(64) && both.errors.contains("or use --focused, not both"))
        let value = try home.run("rule", "gimp", "Suspension=often")
        #expect(value.status == .exited(64) && value.errors.contains("Usage: appstatectl rule "))
        let address = try home.run("suspend", "--address", "nonsense", "1")
        #expect(address.status == .exited(64) && address.errors.contains("Usage: appstatectl suspend "))
    }
}

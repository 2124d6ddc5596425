import AppStateBus
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Desktop

/// Programs that are started as children, with real processes.
@Suite("Starting programs")
struct StartTests {
    static let actor = Programs.built("GateActor")

    private static func executable(of pid: Int32) throws -> String {
        try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/exe")
    }

    /// A loop with a starter of children.
    private final class Stage {
        let scratch: Scratch
        let loop: EventLoop
        let starter: ProgramStarter

        init() throws {
            scratch = try Scratch()
            loop = try EventLoop()
            starter = ProgramStarter(
                loop: loop, bus: nil, executable: try #require(StartTests.actor), directory: scratch.path)
        }

        /// Runs the loop until the condition holds.
        func turn(until condition: () throws -> Bool) throws {
            let holds = try eventually {
                if try condition() { return true }
                _ = try loop.runOnce(timeout: 50_000)
                return try condition()
            }
            #expect(holds)
        }

        func start(_ words: [String], directory: String? = nil) throws -> StartedProgram {
            var result: Result<StartedProgram, MethodError>?
            starter.start(request(words, directory: directory)) { result = $0 }
            try turn { result != nil }
            return try #require(result).get()
        }

        func request(_ words: [String], directory: String? = nil) -> ProgramRequest {
            ProgramRequest(
                id: "org.example.App", name: "App",
                command: ProgramCommand(program: words[0], arguments: words, directory: directory),
                environment: [("XDG_ACTIVATION_TOKEN", "token")])
        }

        /// Makes a program of what printf(1) writes. Not by this process, as with `Programs.copy`.
        func program(_ name: String, _ format: String) throws -> String {
            let file = "\(scratch.path)/\(name)"
            let maker = try Child("sh", ["-c", #"printf "$1" > "$0" && chmod 755 "$0""#, file, format])
            guard try maker.waitForExit() == .exited(0) else { throw TestFailure(maker.errors) }
            return file
        }

        func text(_ name: String) -> String? {
            try? String(contentsOfFile: "\(scratch.path)/\(name)", encoding: .utf8)
        }

        var gates: [String] {
            TextFile.names(inDirectory: scratch.path).filter { $0.hasPrefix("appstate-gate") }
        }
    }

    @Test("a process that may proceed becomes its program, with the environment that the desktop gives it")
    func proceed() throws {
        let stage = try Stage()
        let out = "\(stage.scratch.path)/out"
        // A shell blocks all signals while it forks: what it inherited is read from its child.
        let script =
            "echo $$ $0 $1 > \(out); pwd >> \(out); echo $XDG_ACTIVATION_TOKEN ${NOTIFY_SOCKET-none} >> \(out);"
            + "ls /proc/self/fd | wc -l >> \(out); readlink /proc/$$/fd/0 >> \(out); cut -d' ' -f6 /proc/$$/stat >> \(out);"
            + "grep Sig[BI] /proc/self/status >> \(out); exit 7"
        // A descriptor that the program must not inherit.
        let open = try #require(Optional(dup(0)))
        defer { close(open) }
        let program = try stage.start(["/bin/sh", "-c", script, "name", "a $HOME"], directory: "/usr")
        #expect(stage.text("out") == nil && program.ending == nil && program.unit == nil)
        #expect(stage.gates.isEmpty)
        #expect(try Self.executable(of: program.pid).hasSuffix("/GateActor"))
        var failure: String??
        program.proceed { failure = .some($0) }
        var ending: Linux.ExitStatus?
        program.onEnd { ending = $0 }
        try stage.turn { ending != nil && failure != nil }
        #expect(failure == .some(nil) && ending == .exited(7) && program.ending == .exited(7))
        let lines = (stage.text("out") ?? "").split(separator: "\n").map(String.init)
        #expect(lines.first == "\(program.pid) name a $HOME")
        #expect(Array(lines.dropFirst().prefix(2)) == ["/usr", "token none"])
        // ls has its own directory open besides the three.
        #expect(lines.dropFirst(3).first == "4")
        #expect(lines.dropFirst(4).first == "/dev/null")
        #expect(lines.dropFirst(5).first == "\(program.pid)", "a session of its own")
        // Except for two signals of the C library, which every program that is started like ours ignores.
        let own: UInt64 = 3 << 31
        for line in lines.suffix(2) {
            let signals = line.split(separator: "\t").last.flatMap { UInt64($0, radix: 16) }
            #expect(signals.map { $0 & ~own } == 0, "\(line)")
        }
    }

    @Test("a cancelled process ends, and its program does not run")
    func cancel() throws {
        let stage = try Stage()
        let program = try stage.start(["/bin/touch", "\(stage.scratch.path)/out"])
        program.cancel()
        try stage.turn { program.ending != nil }
        #expect(program.ending == .exited(0) && stage.text("out") == nil)
    }

    @Test("a program that cannot be run is reported, and ends with the status that a shell gives")
    func failure() throws {
        let stage = try Stage()
        for (words, directory, why) in [
            (["/no/such"], nil, ENOENT), (["/etc/passwd"], nil, EACCES), (["/bin/true"], "/no/such", ENOENT),
            ([try stage.program("orphan", "#!/no/such\n")], nil, ENOENT),
        ] as [([String], String?, Int32)] {
            let program = try stage.start(words, directory: directory)
            var failure: String??
            program.proceed { failure = .some($0) }
            try stage.turn { failure != nil && program.ending != nil }
            #expect(failure == .some(String(cString: strerror(why))))
            #expect(program.ending == .exited(127))
        }
    }

    @Test("a program that cannot be started, or does not reach the gate, is a failure with a message")
    func refusals() throws {
        let stage = try? Stage()
        let loop = try EventLoop()
        let scratch = try Scratch()
        for (executable, part) in [
            ("/no/such", "No such file"), ("/bin/false", "ended before it could wait"),
        ] {
            let starter = ProgramStarter(
                loop: loop, bus: nil, executable: executable, directory: scratch.path)
            var result: Result<StartedProgram, MethodError>?
            let request = ProgramRequest(
                id: "a", name: "A", command: ProgramCommand(program: "/bin/true", arguments: ["true"]))
            starter.start(request) { result = $0 }
            while result == nil { _ = try loop.runOnce(timeout: 50_000) }
            #expect(throws: MethodError.self) { try result?.get() }
            if case .failure(let failure)? = result { #expect("\(failure)".contains(part), "\(failure)") }
        }
        #expect(TextFile.names(inDirectory: scratch.path).isEmpty)
        withExtendedLifetime(stage) {}
    }

    @Test(
        "the name of a unit contains the application's id, for us and for the portal",
        arguments: ["org.example.App", "org.example.my-app", "firefox"])
    func unitName(_ id: String) throws {
        // That of xdg-desktop-portal.
        let rule = #"^app-(?:[[:alnum:]]+\-)?(.+?)(?:@[[:alnum:]]*|\-autostart)?\.service$"#
        let name = UnitName.service(id)
        let whole = NSRange(name.startIndex..., in: name)
        let found = try NSRegularExpression(pattern: rule).firstMatch(in: name, range: whole)
        let range = Range(try #require(found).range(at: 1), in: name)
        #expect(range.map { name[$0].replacingOccurrences(of: #"\x2d"#, with: "-") } == id)
        #expect(ApplicationUnit(inPath: "/app.slice/" + name)?.application == id)
    }
}

import AppStateBus
import Desktop
import Glibc
import Linux

/// Waits at a gate as the session agent's program does (`--gate …`), or starts a program as the agent does: `GateActor
/// ID PROGRAM ARGUMENT…`, and prints its unit.
@main
enum GateActor {
    static func main() throws {
        var words = Array(CommandLine.arguments.dropFirst())
        if words.first == GateProgram.option { GateProgram.run(Array(words.dropFirst())) }
        let id = words.removeFirst()
        let loop = try EventLoop()
        let bus = try Bus.open(address: Environment["DBUS_SESSION_BUS_ADDRESS"] ?? "")
        try bus.attach(to: loop)
        let starter = ProgramStarter(
            loop: loop, bus: bus, executable: try Proc().formerExecutable(of: getpid()),
            directory: Environment["XDG_RUNTIME_DIR"])
        let request = ProgramRequest(
            id: id, name: "A test",
            command: ProgramCommand(program: "/usr/bin/\(words[0])", arguments: words),
            environment: [("XDG_ACTIVATION_TOKEN", "a $token"), ("DESKTOP_STARTUP_ID", "an id")])
        starter.start(request) { result in
            guard let program = try? result.get() else { return loop.exit(code: 1) }
            print(program.unit ?? "child")
            program.proceed()
            program.onEnd { _ in loop.exit(code: 0) }
        }
        exit(try loop.run())
    }
}

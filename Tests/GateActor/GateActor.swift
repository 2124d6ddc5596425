import AppStateBus
import Desktop
import Glibc
import Linux

/// Waits at a gate as the session agent's program does (`--gate …`), or starts programs as the agent does: `GateActor
/// [--proceed | --cancel | --hold] [--children] ID PROGRAM ARGUMENT…`, and prints a line for each event.
@main
enum GateActor {
    static func main() throws {
        var words = Array(CommandLine.arguments.dropFirst())[...]
        if words.first == GateProgram.option { GateProgram.run(Array(words.dropFirst())) }
        let order = words.popFirst()
        let isChild = words.first == "--children"
        if isChild { words.removeFirst() }
        guard let order, let id = words.popFirst(), let first = words.first
        else { fatalError("usage: GateActor --proceed|--cancel|--hold [--children] ID PROGRAM ARGUMENT…") }
        let program = first.hasPrefix("/") ? first : "/usr/bin/\(first)"
        let loop = try EventLoop()
        var bus: Bus?
        if !isChild, let address = Environment["DBUS_SESSION_BUS_ADDRESS"] {
            bus = try Bus.open(address: address)
            try bus?.attach(to: loop)
        }
        let starter = ProgramStarter(
            loop: loop, bus: bus, executable: Programs.own, directory: Environment["XDG_RUNTIME_DIR"])
        let request = ProgramRequest(
            id: id, name: "A test", command: ProgramCommand(program: program, arguments: Array(words)),
            environment: [("XDG_ACTIVATION_TOKEN", "a $token"), ("DESKTOP_STARTUP_ID", "an id")])
        var kept: StartedProgram?
        starter.start(request) { result in
            switch result {
            case .success(let program):
                kept = program
                say("waits \(program.pid) \(program.unit ?? "child")")
                follow(program, order, loop)
            case .failure(let failure):
                say("failed \(failure)")
                loop.exit(code: 1)
            }
        }
        let code = try loop.run()
        withExtendedLifetime((starter, kept)) {}
        exit(code)
    }

    private static func follow(_ program: StartedProgram, _ order: String, _ loop: EventLoop) {
        program.onEnd { ending in
            say("ended \(ending)")
            loop.exit(code: 0)
        }
        switch order {
        case "--proceed":
            program.proceed { say($0.map { "refused \($0)" } ?? "runs") }
        case "--cancel": program.cancel()
        default: break
        }
    }

    /// Writes immediately, whatever standard output is.
    private static func say(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = write(STDOUT_FILENO, bytes, bytes.count)
    }

    private enum Programs {
        static var own: String {
            var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
            let count = readlink("/proc/self/exe", &buffer, buffer.count)
            return String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
    }
}

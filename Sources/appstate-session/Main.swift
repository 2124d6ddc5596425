import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import Systemd
import Windows

/// The session agent's main: reads the arguments, starts or refuses with a sentence, and runs the loop.
@main
enum Main {
    static func main() {
        if CommandLine.arguments.dropFirst().first == GateProgram.option {
            GateProgram.run(Array(CommandLine.arguments.dropFirst(2)))
        }
        switch Arguments.reading(CommandLine.arguments.dropFirst()) {
        case .help:
            print(Arguments.usage)
        case .version:
            print("appstate-session \(Product.version)")
        case .wrong(let what):
            refuse("\(what); see appstate-session --help", status: 2)
        case .run(let options):
            exit(run(options))
        }
    }

    private static func run(_ options: Arguments.Options) -> Int32 {
        let journal = Journal(identifier: "appstate-session", minimum: Journal.environmentMinimum)
        // Standard output may be a pipe without a reader.
        signal(SIGPIPE, SIG_IGN)
        // The process that started us may ignore SIGCHLD. The kernel would then reap the commands that we wait for.
        signal(SIGCHLD, SIG_DFL)
        Heap.returnLargeBlocks()
        do {
            let loop = try EventLoop()
            let agent = try Agent(loop: loop, options: options, journal: journal)
            try agent.start()
            return try withExtendedLifetime(agent) { try loop.run() }
        } catch ObserverFailure.unsupported(let why) {
            refuse("cannot watch this desktop: \(why)", status: unsupported)
        } catch {
            let address = getenv("DBUS_SYSTEM_BUS_ADDRESS").map {
                " (DBUS_SYSTEM_BUS_ADDRESS=\(String(cString: $0)))"
            }
            let place = error is BusFailure ? address : nil
            refuse("cannot watch this session: \(error)\(place ?? "")", status: 1)
        }
    }

    /// Another attempt would have the same result: RestartPreventExitStatus= of the unit names this status.
    private static let unsupported: Int32 = 3

    private static func refuse(_ sentence: String, status: Int32) -> Never {
        Journal(identifier: "appstate-session").log(.error, sentence)
        exit(status)
    }
}

import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd

/// The transfer program's main: reads the arguments, starts or refuses with a sentence, and runs the loop.
@main
enum Main {
    private static let usage = """
        appstate-transfer [--stall-sec N] [--attempts N] [--idle-sec N]

        Downloads and uploads files for the applications of this user, while they are
        suspended or do not run. The session bus starts it; see appstatectl transfers.

          --stall-sec N  seconds without a byte after which an attempt ends (30)
          --attempts N   attempts without a new byte after which a transfer fails (12)
          --idle-sec N   seconds without anything to do after which it ends (30)
          --version      print the version
          --help         print this

        Exit status: 0 nothing to do, or asked to end; 1 there is no session bus, the
        queue cannot be used, or the system bus has ended; 2 wrong usage.
        """

    static func main() {
        var settings = Queue.Settings()
        var idle = 30
        var rest = Array(CommandLine.arguments.dropFirst())[...]
        while let word = rest.popFirst() {
            switch word {
            case "--help", "-h":
                print(usage)
                return
            case "--version":
                print("appstate-transfer \(Product.version)")
                return
            case "--stall-sec", "--attempts", "--idle-sec":
                guard let value = rest.popFirst().flatMap({ Int($0) }), (1...86_400).contains(value) else {
                    refuse("\(word) needs a number from 1 to 86400; see appstate-transfer --help", status: 2)
                }
                if word == "--stall-sec" { settings.stall = value }
                if word == "--attempts" { settings.attempts = value }
                if word == "--idle-sec" { idle = value }
            default:
                refuse("there is no argument \"\(word)\"; see appstate-transfer --help", status: 2)
            }
        }
        exit(run(settings, idle: UInt64(idle) * 1_000_000))
    }

    private static func run(_ settings: Queue.Settings, idle: UInt64) -> Int32 {
        let journal = Journal(identifier: "appstate-transfer", minimum: Journal.environmentMinimum)
        signal(SIGPIPE, SIG_IGN)
        // Each file gets the permissions that it is made with.
        umask(0)
        do {
            let loop = try EventLoop()
            let session = try Bus.open(address: try sessionAddress()) { journal.log(.error, $0) }
            let service = try Service(
                loop: loop, session: session, system: system(journal), directory: try directory(),
                settings: settings, idle: idle, journal: journal)
            try service.start()
            return try withExtendedLifetime(service) { try loop.run() }
        } catch {
            refuse("cannot serve \(TransferNames.service): \(error)", status: 1)
        }
    }

    /// Without a system bus, files are transferred, and no application is told.
    private static func system(_ journal: Journal) -> Bus? {
        do {
            return try Bus.system { journal.log(.error, $0) }
        } catch {
            journal.log(.notice, "applications are not told of the ends of transfers: \(error)")
            return nil
        }
    }

    private static func sessionAddress() throws -> String {
        if let address = Environment["DBUS_SESSION_BUS_ADDRESS"] { return address }
        guard let directory = Environment["XDG_RUNTIME_DIR"] else {
            throw BusFailure(
                operation: "find", subject: "the session bus", errno: ENOENT,
                message: "neither DBUS_SESSION_BUS_ADDRESS nor XDG_RUNTIME_DIR is set")
        }
        return "unix:path=\(directory)/bus"
    }

    /// Where the queue is: the user's state directory (XDG Base Directory Specification).
    private static func directory() throws -> String {
        let own = Environment["XDG_STATE_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        guard let state = own ?? Environment["HOME"].map({ "\($0)/.local/state" }) else {
            throw KernelFailure(operation: "find", subject: "the home directory", errno: ENOENT)
        }
        return "\(state)/appstate/transfers"
    }

    private static func refuse(_ sentence: String, status: Int32) -> Never {
        Journal(identifier: "appstate-transfer").log(.error, sentence)
        exit(status)
    }
}

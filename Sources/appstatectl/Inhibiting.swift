import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct Inhibit: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run a command, and keep an application from being suspended by policy meanwhile.",
        discussion:
            "The exit status is that of the command, or 128 and the number of the signal that ended it.")

    @OptionGroup var bus: BusOptions
    @Option(help: "Who needs the application, for people. Default: the command.") var who: String?
    @Option(help: "What for, for people.") var why = "a command is running"
    @Argument(help: "The application.", completion: .applications) var app: String
    @Argument(
        parsing: .captureForPassthrough,
        help: ArgumentHelp("The command and its arguments.", valueName: "command"),
        completion: .shellCommand("compgen -c 2>/dev/null"))
    var words: [String]

    private var command: [String] { words.first == "--" ? Array(words.dropFirst()) : words }

    func validate() throws {
        if command.isEmpty { throw ValidationError("Name a command to run.") }
    }

    func run() throws {
        let who = who ?? String(command.joined(separator: " ").prefix(80))
        let inhibitor = try HeldInhibitor(try bus.connect(), of: app, who: who, why: why)
        throw ExitCode(try inhibitor.run(command))
    }
}

/// An inhibitor that lasts while a command runs. A daemon that is restarted does not know it, and is asked for it again.
private final class HeldInhibitor {
    private let client: Client
    private let app: String
    private let who: String
    private let why: String
    private let loop: EventLoop
    private var end: Descriptor?
    private var watch: Source?
    private var slots: [Slot] = []
    private var sources: [Source] = []

    init(_ client: Client, of app: String, who: String, why: String) throws {
        self.client = client
        self.app = app
        self.who = who
        self.why = why
        loop = try EventLoop()
        slots.append(
            try client.bus.watchOwner(
                of: BusNames.service, failed: { Self.warn("the bus does not report on appstated: \($0)") },
                handler: { [unowned self] _, owner in if owner != nil, watch == nil { takeAgain() } }))
        try client.bus.onDisconnect {
            Self.warn("the bus has gone away, and nothing keeps \(app) from being suspended any longer")
        }
        try take()
    }

    /// Runs the command. What asks this program to end is passed on to the command.
    ///
    /// - Returns: the exit status.
    func run(_ command: [String]) throws -> Int32 {
        let pid: Int32
        do {
            pid = try Spawn.run(command)
        } catch {
            Self.warn("\(command[0]): \(String(cString: strerror(error.errno)))")
            return error.errno == ENOENT ? 127 : 126
        }
        let process = try PidFD(pid: pid)
        // A terminal sends these to the command as well.
        for signal in [SIGINT, SIGQUIT] { sources.append(try loop.onSignal(signal) {}) }
        for signal in [SIGTERM, SIGHUP] {
            sources.append(try loop.onSignal(signal) { kill(pid, signal) })
        }
        sources.append(
            try loop.watch(process.rawValue) { [unowned self] _ in
                var status: Int32 = 0
                guard waitpid(pid, &status, WNOHANG) == pid else { return }
                switch ExitStatus(waitStatus: status) {
                case .exited(let code): loop.exit(code: code)
                case .signalled(let signal, _): loop.exit(code: 128 + signal)
                case .unknown: break
                }
            })
        try client.bus.attach(to: loop)
        return try loop.run()
    }

    private func take() throws {
        let reply = try client.call(ApplicationMethod.inhibit, at: try client.path(of: app)) {
            try $0.append(who)
            try $0.append(why)
        }
        let end = Descriptor(owning: try reply.readDescriptor())
        watch = try loop.watch(end.rawValue, for: []) { [unowned self] _ in
            watch = nil
            self.end = nil
            // The application has ended, perhaps to be registered anew; or the daemon has, and the next one is announced.
            if hasDaemon { takeAgain() }
        }
        self.end = consume end
    }

    /// Calling the daemon would start it, although somebody may just have stopped it.
    private var hasDaemon: Bool { (try? client.bus.processID(ofOwner: BusNames.service)) != nil }

    private func takeAgain() {
        do {
            try take()
        } catch let failure as Failure where failure.verdict == .noSuchApplication {
            Self.warn("\(app) has ended")
        } catch {
            // A daemon that is ending has not answered.
            if hasDaemon {
                Self.warn("\(app) can be suspended: \((error as? Failure)?.sentence ?? "\(error)")")
            }
        }
    }

    private static func warn(_ sentence: String) { Terminal.warn("appstatectl: \(sentence)") }
}

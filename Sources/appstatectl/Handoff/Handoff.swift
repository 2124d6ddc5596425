import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct Handoff: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Continue on another machine what you are doing here, or the other way round.",
        discussion: """
            HOST is what ssh(1) takes, with your keys and your configuration. The other machine has appstated, and an \
            application that declares the type of the activity (see appstatectl help continue).

            If the connection is lost, repeat the command: the activity is delivered once. It is a new activity, \
            which is delivered again, if you have gone on meanwhile, or if the last attempt has succeeded.
            """)

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Option(
        help: ArgumentHelp("Fetch what you are doing on this host, and continue it here.", valueName: "host"))
    var from: String?
    @Option(
        help: ArgumentHelp("Copy a file along: the application there opens it first.", valueName: "file"),
        completion: .file())
    var with: String?
    @Argument(help: "The host that continues it.") var host: String?
    @Argument(help: "The application. Default: the one in front.", completion: .applications)
    var app: String?

    func validate() throws {
        guard (from == nil) != (host == nil) else {
            throw ValidationError("Name one host: HOST to send to, or --from HOST to fetch from.")
        }
        guard from == nil || with == nil else { throw ValidationError("--with is for sending.") }
        // ssh would take it for an option.
        guard let host = from ?? host, !host.isEmpty, !host.hasPrefix("-") else {
            throw ValidationError("\"\(from ?? host ?? "")\" is not the name of a host.")
        }
    }

    func run() throws {
        if let from { try fetch(from) } else if let host { try send(to: host) }
    }

    private func fetch(_ host: String) throws {
        let answer = try RemoteCommand.activity.run(at: host)
        let activity = try Activity(line: answer)
        var input = StandardInput()
        try bus.connect().receive(activity, from: &input).show(output)
    }

    private func send(to host: String) throws {
        var activity = try bus.connect().activity(of: app)
        let file = try with.map(SentFile.init)
        activity.file = file?.description
        try HandoffState.sent().number(&activity, for: host)
        let answer = try RemoteCommand.continue.run(
            at: host, about: activity, input: Array((activity.json.text + "\n").utf8), file)
        guard let reception = try? JSON(reading: answer), case .string(let appID)? = reception["app_id"],
            case .bool(let isDelivered)? = reception["delivered"]
        else { throw RemoteCommand.noAnswer(from: host) }
        try HandoffState.sent().arrived(activity, at: host)
        if output.json { return Terminal.emit(reception) }
        Terminal.emit(
            Line(
                isDelivered
                    ? "\(host) continues it in \(appID)" : "\(host) has continued it already in \(appID)"))
    }
}

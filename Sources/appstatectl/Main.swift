import AppStateContract
import ArgumentParser

/// The command line to the life cycle service.
@main
struct AppStateCtl: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "appstatectl",
        abstract: "Show and control the life cycle of applications.",
        discussion: """
            APP is an application's number, its object path, its id where only one application has it, \
            or pid:PID.

            Exit status: 0 done; 1 the daemon refused or failed; 3 no such application; \
            4 appstated is not running; 64 wrong usage.
            """,
        version: "appstatectl \(Product.version)",
        subcommands: [
            List.self, Show.self, Explain.self, Monitor.self, Status.self, Register.self, Unregister.self,
            Suspend.self, Resume.self, Terminate.self, Focus.self, Minimize.self, Reload.self,
        ],
        defaultSubcommand: List.self)
}

/// Where the service is reached.
struct BusOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The bus, instead of the system bus.", valueName: "address"))
    var address: String?

    func connect() throws -> Client { try Client(address: address) }
}

/// How a command prints.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print JSON.")
    var json = false
}

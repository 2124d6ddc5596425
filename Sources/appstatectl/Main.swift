import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc

/// The command line tool for the life cycle service.
@main
struct AppStateCtl: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "appstatectl",
        abstract: "Show and control the life cycle of applications.",
        discussion: """
            APP is an application's number, its object path, its id where only one application has it, \
            or pid:PID. Digits that are one application's number and another one's id are neither: \
            name the one by its object path.

            A command with several applications goes on with the others when one fails, says each failure, and \
            ends with the status of the first; without appstated it ends at once. monitor begins only where \
            it finds all of them.

            On a terminal, what list, show, explain and status print is cut to its width, or to COLUMNS; \
            in a file or a pipe nothing is cut. \
            Control characters in what applications say of themselves are shown as \\n, \\x1b or \\u{202e}.

            Exit status: 0 done, or nobody reads the output any more; 1 the daemon refused or failed, or the \
            output cannot be written; 2 digits that are both a number and an id; 3 no such application; \
            4 appstated is not running; 64 wrong usage, also a value that an option does not take.
            """,
        version: "appstatectl \(Product.version)",
        subcommands: [
            List.self, Show.self, Explain.self, History.self, Monitor.self, Status.self, Launch.self,
            Open.self,
            Register.self,
            Unregister.self,
            Suspend.self, Resume.self, Toggle.self, Terminate.self, Focus.self, Minimize.self,
            RuleCommand.self,
            Rules.self, Reload.self,
        ],
        defaultSubcommand: List.self)

    static func main() {
        Terminal.prepare()
        do {
            var command = try parseAsRoot()
            try command.run()
        } catch let failure as Failure {
            end(failure)
        } catch let failure as BusFailure {
            end(Failure(failure.sentence))
        } catch {
            // Help, usage and completions. ArgumentParser itself would print them without checking for write errors.
            let (text, code) = (fullMessage(for: error), exitCode(for: error))
            if !text.isEmpty, code.isSuccess {
                Terminal.emit(raw: text)
            } else if !text.isEmpty {
                for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
                    Terminal.warn(String(line))
                }
            }
            Glibc.exit(code.rawValue)
        }
    }

    private static func end(_ failure: Failure) -> Never {
        Terminal.warn("appstatectl: \(failure.sentence)")
        Glibc.exit(failure.verdict.rawValue)
    }
}

/// The bus on which the service is reached.
struct BusOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The bus, instead of the system bus.", valueName: "address"))
    var address: String?

    func connect() throws -> Client { try Client(address: address) }
}

/// How a command prints its output.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print JSON.")
    var json = false
}

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
            APP is an application's number, its object path, its id if only one application has it, \
            or pid:PID. focus and minimize take a process instead: there, digits are a PID. \
            history, forget, schedule and usage take an id.

            If a command with several applications fails for one, it continues with the others, reports each \
            failure, and exits with the status of the first; if appstated is not running, it ends at once. \
            monitor starts only if it finds all of them, except that no application need have an id yet.

            Exit status: 0 done; 1 refused or failed; 2 an id that several applications have; 3 no such \
            application or process; 4 appstated is not running; 5 to 8 what handoff has met on the other host; 64 \
            wrong usage. appstatectl(1) says more of these, and of output on a terminal.
            """,
        version: "appstatectl \(Product.version)",
        subcommands: [
            List.self, Show.self, Explain.self, Windows.self, History.self, Forget.self, Monitor.self,
            Wait.self,
            Status.self, Top.self, UsageCommand.self, Timeline.self, Doctor.self, Tasks.self, Schedule.self,
            Launch.self,
            Open.self,
            Activate.self,
            ShowActivity.self, Continue.self, Handoff.self,
            Register.self,
            Unregister.self,
            Suspend.self, Resume.self, Toggle.self, Inhibit.self, Terminate.self, Focus.self, Minimize.self,
            RuleCommand.self,
            Rules.self, Reload.self, Transfers.self, TransferCommand.self, Complete.self,
        ],
        defaultSubcommand: List.self)

    static func main() {
        Terminal.prepare()
        refuseBrokenArguments()
        refuseUnknownCommand()
        do {
            var command = try parseAsRoot()
            do {
                try command.run()
            } catch let misuse as ValidationError {
                end(misuse, in: type(of: command))
            }
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

    /// Swift replaces bytes in an argument that are not UTF-8, so that the argument would mean something
    /// else.
    private static func refuseBrokenArguments() {
        for index in 1..<max(Int(CommandLine.argc), 1) {
            guard let argument = CommandLine.unsafeArgv[index], String(validatingCString: argument) == nil
            else { continue }
            end(Failure("\"\(String(cString: argument))\" is not UTF-8", .usage))
        }
    }

    /// Otherwise the word would count as an excess argument of the default command.
    private static func refuseUnknownCommand() {
        let commands = configuration.subcommands.map { $0._commandName } + ["help"]
        var words = CommandLine.arguments.dropFirst()
        // ArgumentParser would print the overview for a command that does not exist.
        if words.first == "help" { words = words.dropFirst() }
        guard let word = words.first, !word.hasPrefix("-"), !commands.contains(word) else { return }
        let shown = configuration.subcommands.filter { $0.configuration.shouldDisplay }.map {
            $0._commandName
        }
        let near = (shown + ["help"]).filter { abs($0.count - word.count) <= 2 }
            .map { ($0, $0.distance(to: word)) }
        let meant = near.min { $0.1 < $1.1 }.flatMap { $1 <= 2 && $1 < word.count ? $0 : nil }
        let hint = meant.map { "; did you mean \($0)?" }
        end(Failure("there is no command \"\(word)\"\(hint ?? " (see appstatectl --help)")", .usage))
    }

    /// ArgumentParser prints the usage of a command only with the errors that it finds itself.
    private static func end(_ misuse: ValidationError, in command: any ParsableCommand.Type) -> Never {
        Terminal.warn("Error: \(misuse.message)")
        for line in "Usage: \(usageString(for: command))".split(separator: "\n") {
            Terminal.warn(String(line))
        }
        Terminal.warn("  See 'appstatectl \(command._commandName) --help' for more information.")
        Glibc.exit(Verdict.usage.rawValue)
    }

    private static func end(_ failure: Failure) -> Never {
        Terminal.warn("appstatectl: \(failure.sentence)")
        Glibc.exit(failure.verdict.rawValue)
    }
}

/// The bus on which the service is reached.
struct BusOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The bus to use instead of the system bus.", valueName: "address"))
    var address: String?

    func connect() throws -> Client { try Client(address: address) }
}

/// How a command prints its output.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print JSON.")
    var json = false
}

extension String {
    /// How many characters must be added, removed or replaced to get the other text (Levenshtein).
    fileprivate func distance(to other: String) -> Int {
        var row = Array(0...other.count)
        for (index, own) in enumerated() {
            var diagonal = row[0]
            row[0] = index + 1
            for (place, their) in other.enumerated() {
                let above = row[place + 1]
                row[place + 1] = Swift.min(above + 1, row[place] + 1, diagonal + (own == their ? 0 : 1))
                diagonal = above
            }
        }
        return row[other.count]
    }
}

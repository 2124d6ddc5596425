/// A command line to run.
public struct ProgramCommand: Equatable, Sendable {
    /// The file of the program.
    public var program: String
    /// The arguments, beginning with `argv[0]`.
    public var arguments: [String]
    /// The working directory; nil: the user's.
    public var directory: String?

    public init(program: String, arguments: [String], directory: String? = nil) {
        (self.program, self.arguments, self.directory) = (program, arguments, directory)
    }
}

/// A program to start, with its description.
public struct ProgramRequest: Sendable {
    /// The id of the application. Its unit is named after it.
    public var id: String
    /// The name of the application, for the unit's description.
    public var name: String
    /// The file of the desktop entry. Nil: there is none.
    public var entry: String?
    public var command: ProgramCommand
    /// Environment variables in addition to the session's, such as `XDG_ACTIVATION_TOKEN`.
    public var environment: [(name: String, value: String)]

    public init(
        id: String, name: String, entry: String? = nil, command: ProgramCommand,
        environment: [(name: String, value: String)] = []
    ) {
        (self.id, self.name, self.entry) = (id, name, entry)
        (self.command, self.environment) = (command, environment)
    }

    /// One of the command lines of an entry. Programs that use GLib recognize by a variable which entry started them.
    public init(
        _ entry: DesktopEntry, _ command: ProgramCommand, environment: [(name: String, value: String)] = []
    ) {
        self.init(
            id: entry.id, name: entry.name, entry: entry.path, command: command,
            environment: [("GIO_LAUNCHED_DESKTOP_FILE", entry.path)] + environment)
    }
}

/// A program to start, with its description.
public struct ProgramRequest: Sendable {
    /// The id of the application. Its unit is named after it.
    public var id: String
    /// The name of the application, for the unit's description.
    public var name: String
    /// The file of the desktop entry. Nil: there is none.
    public var entry: String?
    /// The command to run.
    public var invocation: Invocation
    /// Environment variables in addition to the session's, such as `XDG_ACTIVATION_TOKEN`.
    public var environment: [(name: String, value: String)]

    /// - Parameters:
    ///   - id: the id of the application.
    ///   - name: the name of the application.
    ///   - entry: the file of its desktop entry.
    ///   - invocation: the command to run.
    ///   - environment: variables in addition to the session's.
    public init(
        id: String, name: String, entry: String? = nil, invocation: Invocation,
        environment: [(name: String, value: String)] = []
    ) {
        self.id = id
        self.name = name
        self.entry = entry
        self.invocation = invocation
        self.environment = environment
    }

    /// A request for one of the command lines of an entry. It sets the variable by which programs that use GLib
    /// recognize the entry that started them.
    public init(
        _ entry: DesktopEntry, _ invocation: Invocation, environment: [(name: String, value: String)] = []
    ) {
        self.init(
            id: entry.id, name: entry.name, entry: entry.path, invocation: invocation,
            environment: [("GIO_LAUNCHED_DESKTOP_FILE", entry.path)] + environment)
    }
}

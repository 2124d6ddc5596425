/// A program to start, and what is said of it.
public struct ProgramRequest: Sendable {
    /// The id of the application; its unit is named after it.
    public var id: String
    /// What it is called; for the unit's description.
    public var name: String
    /// The file of its desktop entry; nil: it has none.
    public var entry: String?
    /// What is run.
    public var invocation: Invocation
    /// What its environment is to have beside the session's, such as `XDG_ACTIVATION_TOKEN`.
    public var environment: [(name: String, value: String)]

    /// - Parameters:
    ///   - id: of the application.
    ///   - name: what it is called.
    ///   - entry: the file of its desktop entry.
    ///   - invocation: what is run.
    ///   - environment: beside the session's.
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

    /// For one of the command lines of an entry. Programs that use GLib find out that they were started by it.
    public init(
        _ entry: DesktopEntry, _ invocation: Invocation, environment: [(name: String, value: String)] = []
    ) {
        self.init(
            id: entry.id, name: entry.name, entry: entry.path, invocation: invocation,
            environment: [("GIO_LAUNCHED_DESKTOP_FILE", entry.path)] + environment)
    }
}

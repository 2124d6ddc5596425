public import Linux

/// Where programs look for data and configuration: the XDG Base Directory Specification.
public struct BaseDirectories: Equatable, Sendable {
    /// For data, in order of precedence: `XDG_DATA_HOME`, then `XDG_DATA_DIRS`.
    public let data: [String]
    /// For configuration, in order of precedence: `XDG_CONFIG_HOME`, then `XDG_CONFIG_DIRS`.
    public let configuration: [String]

    /// Uses the given directories. A path that is not absolute is ignored, as the specification requires.
    public init(data: [String], configuration: [String]) {
        self.data = data.filter { $0.hasBytes(prefix: "/") }
        self.configuration = configuration.filter { $0.hasBytes(prefix: "/") }
    }

    /// Uses the directories of an environment.
    ///
    /// - Parameter environment: returns the value of a variable; nil: it is not set, or empty.
    public init(environment: (String) -> String? = { Environment[$0] }) {
        let home = environment("HOME")
        func directories(_ kind: String, _ below: String, _ system: String) -> [String] {
            let own = environment("XDG_\(kind)_HOME") ?? home.map { "\($0)/\(below)" }
            let others = environment("XDG_\(kind)_DIRS") ?? system
            return [own].compactMap(\.self) + others.split(separator: ":").map(String.init)
        }
        self.init(
            data: directories("DATA", ".local/share", "/usr/local/share:/usr/share"),
            configuration: directories("CONFIG", ".config", "/etc/xdg"))
    }
}

/// Where programs look for data and configuration: the XDG Base Directory Specification.
public struct BaseDirectories: Equatable, Sendable {
    /// Of data, the first first: `XDG_DATA_HOME`, then `XDG_DATA_DIRS`.
    public let data: [String]
    /// Of configuration, the first first: `XDG_CONFIG_HOME`, then `XDG_CONFIG_DIRS`.
    public let configuration: [String]

    /// Directories that are given. A path that is not absolute is ignored, as the specification asks for.
    public init(data: [String], configuration: [String]) {
        self.data = data.filter { $0.hasBytes(prefix: "/") }
        self.configuration = configuration.filter { $0.hasBytes(prefix: "/") }
    }

    /// As an environment says.
    ///
    /// - Parameter environment: gives what a variable says; nil: it is not set, or empty.
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

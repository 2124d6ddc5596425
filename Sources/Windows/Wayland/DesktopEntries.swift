import Glibc
import Linux

/// What desktop entries start (Desktop Entry Specification), found by their ids, which Wayland's applications use for
/// their windows, and others for their names on the session bus.
public struct DesktopEntries {
    private let directories: [String]
    private var commands: [String: String?] = [:]

    /// The most ids that are remembered at once.
    private static let mostEntries = 1_024
    private static let suffix = ".desktop"

    /// Entries where the XDG Base Directory Specification has them, by this process's environment.
    public init() { self.init(directories: Self.dataDirectories) }

    /// Where data of programs is, in the order in which it is looked for there (XDG Base Directory Specification), by this
    /// process's environment.
    public static var dataDirectories: [String] {
        let own = Environment["XDG_DATA_HOME"] ?? Environment["HOME"].map { $0 + "/.local/share" }
        let others = Environment["XDG_DATA_DIRS"] ?? "/usr/local/share:/usr/share"
        return [own].compactMap(\.self) + others.split(separator: ":").map(String.init)
    }

    /// - Parameter directories: each with a directory `applications`.
    public init(directories: [String]) {
        self.directories = directories.filter { $0.hasPrefix("/") }
    }

    /// The name of the program that the entry of this id starts; nil where there is none.
    public mutating func command(of id: String) -> String? {
        if let known = commands[id] { return known }
        if commands.count >= Self.mostEntries { commands = [:] }
        let found = find(id)
        commands[id] = .some(found)
        return found
    }

    private func find(_ id: String) -> String? {
        guard !id.isEmpty, !id.utf8.contains(UInt8(ascii: "/")),
            id.utf8.count + Self.suffix.utf8.count <= Int(NAME_MAX)
        else { return nil }
        for directory in directories {
            guard let text = try? TextFile.read("\(directory)/applications/\(id)\(Self.suffix)") else {
                continue
            }
            return Self.command(in: text)
        }
        return nil
    }

    /// The program in `Exec` of the group `Desktop Entry`, without its directories; after `env`, what that starts.
    static func command(in text: String) -> String? {
        var isEntry = false
        for line in text.split(whereSeparator: \.isNewline) {
            if line.hasPrefix("[") { isEntry = line.hasPrefix("[Desktop Entry]") }
            guard isEntry, let equals = line.firstIndex(of: "="),
                line[..<equals].split(separator: " ") == ["Exec"]
            else { continue }
            let words = line[line.index(after: equals)...].split(separator: " ").drop { word in
                word == "env" || word.hasSuffix("/env") || word.contains("=")
            }
            return words.first?.filter { $0 != "\"" }.split(separator: "/").last.map(String.init)
        }
        return nil
    }
}

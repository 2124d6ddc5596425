public import AppStateBus

/// How an application is started, as its desktop entry says.
public struct DesktopEntry: Sendable {
    /// The id, without `.desktop`.
    public let id: String
    /// The path of the file.
    public let path: String
    /// `Name` in the user's language.
    public let name: String
    /// `Icon` in the user's language; nil: it has none.
    public let icon: String?
    /// `StartupWMClass`: the class of at least one of the first windows.
    public let startupWMClass: String?
    /// `StartupNotify`: the program announces its window.
    public let startupNotify: Bool
    /// `DBusActivatable`: the application is started by a call on the session bus to the name that equals its id.
    public let isDBusActivatable: Bool
    /// The command lines. There are several if the program takes one file or URL at a time.
    public let commands: [ProgramCommand]
    /// Why there are none, so that only the session bus can start the application; nil: there are some.
    public let obstacle: String?

    /// The entry of an application that is to open URLs or absolute paths.
    ///
    /// - Throws: `NoSuchApplication`; or the reason why it cannot be started, or cannot open them.
    public init(_ id: String, opening urls: [String] = []) throws(MethodError) {
        var records = try EntryReader.read(["start", id] + urls)[...]
        guard let fields = records.popFirst(), fields.count == 7 else {
            throw .failed("the desktop entry \(id) cannot be read")
        }
        func text(_ number: Int) -> String? { fields[number].isEmpty ? nil : fields[number] }
        self.id = id
        (path, name, icon, startupWMClass) = (fields[0], fields[1], text(2), text(3))
        (startupNotify, isDBusActivatable, obstacle) = (text(4) != nil, text(5) != nil, text(6))
        commands = records.filter { $0.count >= 3 }.map { words in
            ProgramCommand(
                program: words[1], arguments: Array(words[2...]),
                directory: words[0].isEmpty ? nil : words[0])
        }
    }

    /// The ids of the default applications of URLs or absolute paths, one for each.
    ///
    /// - Throws: the reason why one of them is not opened by anything.
    public static func handlers(of urls: [String]) throws(MethodError) -> [String] {
        try EntryReader.read(["open"] + urls).compactMap(\.first)
    }
}

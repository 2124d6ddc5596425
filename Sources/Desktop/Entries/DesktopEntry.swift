import Linux

/// The desktop entry of an application, as the Desktop Entry Specification 1.5 defines it.
///
/// Of the localized keys, `Name` and `Icon` are read in the user's language.
public struct DesktopEntry: Equatable, Sendable {
    /// The id, without `.desktop`.
    public let id: String
    /// The path of the file.
    public let path: String
    /// `Name`; the id if the entry has no name.
    public let name: String
    /// `Exec`, with the escapes of the file format decoded. Nil: the entry has none, or an empty one.
    public let exec: String?
    /// `TryExec`. Nil: the entry has none, or an empty one.
    public let tryExec: String?
    /// `Path`: the working directory. Nil: the entry has none, or an empty one.
    public let workingDirectory: String?
    /// `Terminal`: the program must run in a terminal.
    public let needsTerminal: Bool
    /// `DBusActivatable`: the application is started by a call on the session bus to the name that equals its id.
    public let isDBusActivatable: Bool
    /// `Hidden`: the desktop treats the entry as if it did not exist.
    public let isHidden: Bool
    /// `NoDisplay`: the entry is not shown in menus.
    public let noDisplay: Bool
    /// `OnlyShowIn`: only the menus of these desktops show the entry. It may be started elsewhere, too.
    public let onlyShowIn: [String]
    /// `NotShowIn`: the menus of these desktops do not show the entry. It may be started there, too.
    public let notShowIn: [String]
    /// `StartupNotify`. Nil: it is unknown whether the program ends a startup sequence.
    public let startupNotify: Bool?
    /// `StartupWMClass`: the class of at least one of the first windows.
    public let startupWMClass: String?
    /// `Icon`. Nil: the entry has none, or an empty one.
    public let icon: String?
    /// `MimeType`: the types that the application opens.
    public let mimeTypes: [String]
    /// `X-AppState-ActivityTypes`: the types of the user activities that the application continues.
    public let activityTypes: [String]

    /// - Parameters:
    ///   - id: the id, without `.desktop`.
    ///   - path: the path of the file.
    ///   - file: the content of the file.
    ///   - locale: the user's language.
    /// - Throws: `notApplication`.
    public init(
        id: String, path: String, file: KeyFile, locale: MessageLocale = MessageLocale()
    ) throws(DesktopFailure) {
        func text(_ key: String) -> String? {
            file.string(key, in: Self.group).flatMap { $0.isEmpty ? nil : $0 }
        }
        func localized(_ key: String) -> String? {
            for name in locale.names {
                if let value = text("\(key)[\(name)]") { return value }
            }
            return text(key)
        }
        let type = text("Type") ?? ""
        isHidden = file.bool("Hidden", in: Self.group) ?? false
        // An entry that is deleted in this way may lack everything else.
        guard type == "Application" || isHidden else { throw .notApplication(id: id, type: type) }
        self.id = id
        self.path = path
        name = localized("Name") ?? id
        exec = text("Exec")
        tryExec = text("TryExec")
        workingDirectory = text("Path")
        needsTerminal = file.bool("Terminal", in: Self.group) ?? false
        isDBusActivatable = file.bool("DBusActivatable", in: Self.group) ?? false
        noDisplay = file.bool("NoDisplay", in: Self.group) ?? false
        onlyShowIn = file.list("OnlyShowIn", in: Self.group)
        notShowIn = file.list("NotShowIn", in: Self.group)
        startupNotify = file.bool("StartupNotify", in: Self.group)
        startupWMClass = text("StartupWMClass")
        icon = localized("Icon")
        mimeTypes = file.list("MimeType", in: Self.group)
        activityTypes = file.list("X-AppState-ActivityTypes", in: Self.group)
    }

    /// Reads the file of an entry.
    ///
    /// - Throws: `unreadable`, `notApplication`.
    public init(id: String, path: String) throws(DesktopFailure) {
        let file: KeyFile
        do throws(KernelFailure) {
            file = try KeyFile(path: path, only: Self.group)
        } catch {
            throw .unreadable(path: path, why: "\(error)")
        }
        try self.init(id: id, path: path, file: file)
    }

    private static let group = "Desktop Entry"
}

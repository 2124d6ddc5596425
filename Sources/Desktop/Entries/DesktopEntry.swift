public import Linux

/// What the desktop entry of an application says: the Desktop Entry Specification 1.5.
///
/// Localized keys are not read: nobody sees what we show of an entry but in messages.
public struct DesktopEntry: Equatable, Sendable {
    /// Its id, without `.desktop`.
    public let id: String
    /// The path of its file.
    public let path: String
    /// `Name`; the id where it has none.
    public let name: String
    /// `Exec`, with the escapes of the file format read; nil: it has none, or an empty one.
    public let exec: String?
    /// `TryExec`; nil: it has none, or an empty one.
    public let tryExec: String?
    /// `Path`: the working directory; nil: it has none, or an empty one.
    public let workingDirectory: String?
    /// `Terminal`: it is to be run in a terminal.
    public let needsTerminal: Bool
    /// `DBusActivatable`: it is started by a call on the session bus, to a name that is its id.
    public let isDBusActivatable: Bool
    /// `Hidden`: for the desktop there is no such entry.
    public let isHidden: Bool
    /// `NoDisplay`: it is in no menu.
    public let noDisplay: Bool
    /// `OnlyShowIn`: the only desktops whose menus have it. Says nothing of whether it may be started.
    public let onlyShowIn: [String]
    /// `NotShowIn`: the desktops whose menus lack it. Says nothing of whether it may be started.
    public let notShowIn: [String]
    /// `StartupNotify`; nil: nobody knows whether it ends a startup sequence.
    public let startupNotify: Bool?
    /// `StartupWMClass`: the class of one of its first windows at least.
    public let startupWMClass: String?
    /// `Icon`; nil: it has none, or an empty one.
    public let icon: String?
    /// `MimeType`: what it opens.
    public let mimeTypes: [String]

    /// - Parameters:
    ///   - id: its id, without `.desktop`.
    ///   - path: where it was read.
    ///   - file: what stands there.
    /// - Throws: `notApplication`.
    public init(id: String, path: String, file: KeyFile) throws(DesktopFailure) {
        func text(_ key: String) -> String? {
            file.string(key, in: Self.group).flatMap { $0.isEmpty ? nil : $0 }
        }
        let type = text("Type") ?? ""
        isHidden = file.bool("Hidden", in: Self.group) ?? false
        // What is deleted may lack everything else.
        guard type == "Application" || isHidden else { throw .notApplication(id: id, type: type) }
        self.id = id
        self.path = path
        name = text("Name") ?? id
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
        icon = text("Icon")
        mimeTypes = file.list("MimeType", in: Self.group)
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

import Glibc
import Linux

/// The programs that desktop entries start (Desktop Entry Specification). Entries are found by their ids, which
/// Wayland's applications use for their windows, and others for their names on the session bus.
public struct DesktopEntries {
    private let directories: [String]
    private var commands: [String: String?] = [:]
    private var index = Index()

    /// The most ids that are remembered at once.
    private static let mostEntries = 1_024
    /// The most entries that are searched.
    private static let mostFiles = 4_096
    private static let suffix = ".desktop"

    /// Entries in the places of the XDG Base Directory Specification, according to this process's environment.
    public init() { self.init(directories: BaseDirectories().data) }

    /// - Parameter directories: each with a directory `applications`.
    public init(directories: [String]) {
        self.directories = directories.filter { $0.hasPrefix("/") }
    }

    /// The name of the program that the entry of this id starts; nil if there is none.
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
            guard let file = Self.file("\(directory)/applications/\(id)\(Self.suffix)") else { continue }
            return Self.command(in: file)
        }
        return nil
    }

    // MARK: By the names of windows and programs

    /// The parts of one entry by which an application may be recognized; all but the id in lower case.
    private struct Entry {
        let id: String
        /// `StartupWMClass`; empty if the entry has none.
        let windowClass: String
        let program: String
        /// The user sees it among the applications.
        let isShown: Bool
    }

    private struct Index {
        var entries: [Entry] = []
        /// The times of the directories' last changes when they were read.
        var versions: [String: timespec] = [:]
    }

    /// The id of the entry that a window and its process belong to; nil if there is none, or if it is ambiguous.
    ///
    /// Tests in this order, ignoring case: an id that is the window's class; `StartupWMClass`; an id that ends with the
    /// class (`org.xfce.mousepad` and `Mousepad`); the program that `Exec` starts.
    ///
    /// - Parameters:
    ///   - windowClass: the class of the window, or its Wayland application id.
    ///   - program: the file name of the process's program.
    public mutating func id(ofClass windowClass: String, program: String?) -> String? {
        refresh()
        let name = windowClass.lowercased()
        let program = program?.lowercased()
        let tests: [(Entry) -> Bool] = [
            { $0.id.lowercased() == name }, { $0.windowClass == name },
            { $0.id.lowercased().hasSuffix("." + name) }, { $0.program == program && $0.windowClass.isEmpty },
        ]
        for (number, isIt) in tests.enumerated() where !(name.isEmpty && number < tests.count - 1) {
            var found = index.entries.filter(isIt)
            // Entries of this program, and those that a user starts, take precedence over others.
            for isBetter in [{ $0.program == program }, \.isShown] as [(Entry) -> Bool] where found.count > 1
            {
                let better = found.filter(isBetter)
                if !better.isEmpty { found = better }
            }
            if found.count == 1 { return found[0].id }
        }
        return nil
    }

    /// Reads all entries again if a directory has changed.
    private mutating func refresh() {
        var versions: [String: timespec] = [:]
        for directory in directories {
            var information = Glibc.stat()
            guard stat("\(directory)/applications", &information) == 0 else { continue }
            versions[directory] = information.st_mtim
        }
        guard
            versions.count != index.versions.count
                || !versions.allSatisfy({ directory, time in
                    index.versions[directory].map {
                        $0.tv_sec == time.tv_sec && $0.tv_nsec == time.tv_nsec
                    } ?? false
                })
        else { return }
        var entries: [String: Entry] = [:]
        for directory in directories {
            for name in TextFile.names(inDirectory: "\(directory)/applications")
            where name.hasSuffix(Self.suffix) && entries.count < Self.mostFiles {
                let id = String(name.dropLast(Self.suffix.count))
                // The first directory that has the entry counts, even if it hides it.
                guard entries[id] == nil, let file = Self.file("\(directory)/applications/\(name)")
                else { continue }
                let program = Self.command(in: file).flatMap { Self.isInterpreter($0) ? nil : $0 }
                entries[id] = Entry(
                    id: id, windowClass: file.string("StartupWMClass", in: Self.group)?.lowercased() ?? "",
                    program: program?.lowercased() ?? "",
                    isShown: ["NoDisplay", "Hidden"].allSatisfy { file.bool($0, in: Self.group) != true })
            }
        }
        index = Index(entries: entries.values.sorted { $0.id < $1.id }, versions: versions)
    }

    /// The program in `Exec` of the group `Desktop Entry`, without its directories; after `env`, the program that `env`
    /// starts.
    static func command(in file: KeyFile) -> String? {
        let words = file.string("Exec", in: group)?.split(separator: " ").drop { word in
            word == "env" || word.hasSuffix("/env") || word.contains("=")
        }
        return words?.first?.filter { $0 != "\"" }.split(separator: "/").last.map(String.init)
    }

    /// A program that runs other programs, so its name does not identify an application.
    private static func isInterpreter(_ program: String) -> Bool {
        Interpreters.names.contains(program) || launchers.contains(program) || program.hasPrefix("python")
    }

    private static let launchers: Set<String> = ["electron", "flatpak", "snap", "wine"]

    private static func file(_ path: String) -> KeyFile? { try? KeyFile(path: path, only: group) }

    private static let group = "Desktop Entry"
}

/// Programs that run other programs, so their names do not identify an application.
public enum Interpreters {
    /// The names, without the version that may follow.
    public static let names: Set<String> = [
        "bash", "dash", "gjs", "java", "mono", "node", "perl", "python", "ruby", "sh",
    ]
}

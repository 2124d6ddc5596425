import AppStateBus
import AppStateContract
import Glibc
import Linux

/// The desktop entries of the user, as GIO reads them: Desktop Entry Specification 1.5.
///
/// GIO runs in a program of its own, appstate-entries, for as long as it takes to answer: some 20 ms. The entries are
/// read when they are needed, and again after a directory of entries has changed.
public final class DesktopEntries {
    private var entries: [Entry] = []
    /// The directories' last changes when they were read. Nil: they were not read yet.
    private var changes: [String]?
    private let directories: [String]
    private let complain: (String) -> Void

    /// An installed application.
    public struct Entry {
        /// The id, without `.desktop`.
        public let id: String
        /// `StartupWMClass` in lower case; empty if the entry has none.
        let windowClass: String
        /// The file name of the program that it starts; empty if it starts none.
        let program: String
        /// The user sees it among the applications.
        let isShown: Bool
        /// The name for the user, in the user's language.
        public let name: String
        /// The name or the path of its icon; empty if the entry has none.
        public let icon: String
        /// `X-AppState-ActivityTypes`: the types of the user activities that the application continues.
        public let activityTypes: [String]
    }

    /// - Parameters:
    ///   - directories: each with a directory `applications`, in order of precedence.
    ///   - complain: gets a sentence if the entries cannot be read. There are none then.
    public init(
        directories: [String] = DataDirectories.all, complain: @escaping (String) -> Void = { _ in }
    ) {
        self.directories = directories
        self.complain = complain
    }

    /// All of them, by id.
    public var all: [Entry] {
        let now = directories.map { directory in
            var information = Glibc.stat()
            let isThere = stat("\(directory)/applications", &information) == 0
            let time = information.st_mtim
            return isThere ? "\(directory) \(time.tv_sec) \(time.tv_nsec)" : ""
        }
        if now != changes {
            changes = now
            do throws(MethodError) {
                entries = try EntryReader.read(["list"], in: directories).compactMap { fields in
                    guard fields.count >= 6 else { return nil }
                    return Entry(
                        id: fields[0], windowClass: fields[1].lowercased(), program: fields[2],
                        isShown: !fields[3].isEmpty, name: fields[4], icon: fields[5],
                        activityTypes: Array(fields[6...]))
                }.sorted { $0.id < $1.id }
            } catch {
                entries = []
                complain(error.message)
            }
        }
        return entries
    }

    /// The entry of this id.
    public func entry(_ id: String) -> Entry? { all.first { $0.id == id } }

    /// The name of the program that the entry of this id starts; nil if there is none.
    public func command(of id: String) -> String? {
        entry(id).flatMap { $0.program.isEmpty ? nil : $0.program }
    }

    /// The id of the entry that a window and its process belong to; nil if there is none, or if it is ambiguous.
    ///
    /// Tests in this order, ignoring case: an id that is the window's class; `StartupWMClass`; an id that ends with the
    /// class (`org.xfce.mousepad` and `Mousepad`); the program that `Exec` starts.
    ///
    /// - Parameters:
    ///   - windowClass: the class of the window, or its Wayland application id.
    ///   - program: the file name of the process's program.
    public func id(ofClass windowClass: String, program: String?) -> String? {
        let all = all
        let name = windowClass.lowercased()
        let program = program?.lowercased()
        func isProgram(_ entry: Entry) -> Bool {
            !Interpreters.runs(entry.program) && entry.program.lowercased() == program
        }
        let tests: [(Entry) -> Bool] = [
            { $0.id.lowercased() == name }, { $0.windowClass == name },
            { $0.id.lowercased().hasSuffix("." + name) }, { isProgram($0) && $0.windowClass.isEmpty },
        ]
        for (number, isIt) in tests.enumerated() where !(name.isEmpty && number < tests.count - 1) {
            var found = all.filter(isIt)
            // Entries of this program, and those that a user starts, take precedence over others.
            for isBetter in [isProgram, \.isShown] as [(Entry) -> Bool] where found.count > 1 {
                let better = found.filter(isBetter)
                if !better.isEmpty { found = better }
            }
            if found.count == 1 { return found[0].id }
        }
        return nil
    }
}

/// Where programs look for data, in order of precedence: the XDG Base Directory Specification.
public enum DataDirectories {
    public static var all: [String] {
        let own = Environment["XDG_DATA_HOME"] ?? Environment["HOME"].map { "\($0)/.local/share" }
        let others = Environment["XDG_DATA_DIRS"] ?? "/usr/local/share:/usr/share"
        // A path that is not absolute is ignored, as the specification requires.
        return ([own].compactMap(\.self) + others.split(separator: ":").map(String.init)).filter {
            $0.hasPrefix("/")
        }
    }
}

/// Programs that run other programs, so their names do not identify an application.
public enum Interpreters {
    /// The names, without the version that may follow.
    public static let names: Set<String> = [
        "bash", "dash", "gjs", "java", "mono", "node", "perl", "python", "ruby", "sh",
    ]
    private static let launchers: Set<String> = ["electron", "flatpak", "snap", "wine"]

    static func runs(_ program: String) -> Bool {
        names.contains(program) || launchers.contains(program) || program.hasPrefix("python")
    }
}

import AppStateContract
public import Linux

/// Finds the application that opens a type: the Association between MIME types and applications specification 1.0.1.
///
/// The order is GLib's. For each type, the defaults of all lists come first, then the associated applications. The
/// types of which it is a kind follow after that. An entry is skipped if it does not exist, or if its program is not
/// installed.
public struct ApplicationDefaults: Sendable {
    /// The types of files.
    public let types: MIMETypes
    private let entries: EntryDirectories
    private let programs: ProgramPath
    private var levels: [AssociationList] = []

    /// Reads the lists. To see later changes to them, create a new instance.
    ///
    /// - Parameters:
    ///   - directories: the base directories of the entries, types and lists.
    ///   - desktops: the value of `XDG_CURRENT_DESKTOP`: names separated by colons.
    ///   - programs: where to look for programs.
    public init(
        _ directories: BaseDirectories = BaseDirectories(),
        desktops: String? = Environment["XDG_CURRENT_DESKTOP"],
        programs: ProgramPath = ProgramPath()
    ) {
        types = MIMETypes(directories)
        entries = EntryDirectories(directories)
        self.programs = programs
        let names = (desktops ?? "").split(separator: ":").map { $0.lowercased() }.filter {
            !$0.contains("/")
        }
        for directory in directories.configuration {
            levels.append(AssociationList(directory, names, data: nil, types))
        }
        for (number, directory) in directories.data.enumerated() {
            levels.append(AssociationList("\(directory)/applications", names, data: number, types))
        }
    }

    /// The application that opens a URL or a file.
    ///
    /// - Parameter url: a URL, or an absolute path.
    /// - Throws: `noHandler`, `notURL`, `noFile`, `unreadable`.
    public func entry(opening url: String) throws(DesktopFailure) -> DesktopEntry {
        let type = try type(of: url)
        guard let entry = entry(ofType: type) else { throw .noHandler(what: url, type: type) }
        return entry
    }

    /// The type that decides which application opens a URL or a file: the type of the file, or
    /// `x-scheme-handler/SCHEME`.
    ///
    /// - Throws: `notURL`, `noFile`, `unreadable`.
    public func type(of url: String) throws(DesktopFailure) -> String {
        if let path = FileURL.path(of: url) { return try types.type(ofFile: path) }
        guard let scheme = FileURL.scheme(of: url) else { throw .notURL(url) }
        return "x-scheme-handler/\(scheme)"
    }

    /// The application that opens a type. Nil: there is none.
    public func entry(ofType type: String) -> DesktopEntry? {
        for kind in types.kinds(of: type) {
            for id in defaults(of: kind) + associated(with: kind) {
                if let entry = try? entries.entry(id), entry.isInstalled(programs: programs) { return entry }
            }
        }
        return nil
    }

    private func defaults(of type: String) -> [String] { levels.flatMap { $0.defaults[type] ?? [] } }

    private func associated(with type: String) -> [String] {
        var found: [String] = []
        var removed: Set<String> = []
        for level in levels {
            for id in level.added[type] ?? [] where !removed.contains(id) && !found.contains(id) {
                found.append(id)
            }
            removed.formUnion((level.removed[type] ?? []).filter { !found.contains($0) })
            for id in level.cached[type] ?? []
            where !removed.contains(id) && !found.contains(id) && !isMasked(id, level) {
                found.append(id)
            }
        }
        return found
    }

    /// Whether a directory with higher precedence has an entry with this id. In that case the cache describes another
    /// entry.
    private func isMasked(_ id: String, _ level: AssociationList) -> Bool {
        guard let data = level.data else { return false }
        return entries.data.prefix(data).contains { EntryDirectories.path(of: id, in: $0) != nil }
    }
}

/// The content of the lists of one directory.
private struct AssociationList: Sendable {
    /// The index of the data directory. Nil: a configuration directory.
    let data: Int?
    private(set) var defaults: [String: [String]] = [:]
    private(set) var added: [String: [String]] = [:]
    private(set) var removed: [String: [String]] = [:]
    /// The types that the entries in the same directory declare.
    private(set) var cached: [String: [String]] = [:]

    private static let suffix = ".desktop"

    init(_ directory: String, _ desktops: [String], data: Int?, _ types: MIMETypes) {
        self.data = data
        // A desktop's own list contains only defaults.
        for desktop in desktops {
            read("\(directory)/\(desktop)-mimeapps.list", hasAssociations: false, types)
        }
        read("\(directory)/mimeapps.list", hasAssociations: true, types)
        guard data != nil else { return }
        // The old name of the list, which GLib reads as well.
        read("\(directory)/defaults.list", hasAssociations: true, types)
        if let cache = try? KeyFile(path: "\(directory)/mimeinfo.cache") {
            Self.take("MIME Cache", of: cache, into: &cached, types)
        }
    }

    private mutating func read(_ path: String, hasAssociations: Bool, _ types: MIMETypes) {
        guard let file = try? KeyFile(path: path) else { return }
        Self.take("Default Applications", of: file, into: &defaults, types)
        guard hasAssociations else { return }
        Self.take("Added Associations", of: file, into: &added, types)
        Self.take("Removed Associations", of: file, into: &removed, types)
    }

    private static func take(
        _ group: String, of file: KeyFile, into list: inout [String: [String]], _ types: MIMETypes
    ) {
        for key in file.keys(of: group) {
            let ids = file.list(key, in: group).filter { $0.hasSuffix(suffix) }
            list[types.unaliased(key), default: []] += ids.map { String($0.dropLast(suffix.count)) }
        }
    }
}

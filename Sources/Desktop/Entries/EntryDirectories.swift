import Glibc
import Linux

/// The directories that hold the desktop entries of applications.
public struct EntryDirectories: Sendable {
    /// The data directories, each of which may have a subdirectory `applications`, in order of precedence.
    public let data: [String]

    private static let suffix = ".desktop"

    /// - Parameter directories: the base directories.
    public init(_ directories: BaseDirectories = BaseDirectories()) { data = directories.data }

    /// The entry with an id such as `org.kde.dolphin`, or `kde4-foo` for `kde4/foo.desktop`. The first directory that
    /// has the entry decides, even if its entry is hidden.
    ///
    /// - Throws: `noEntry`, `hidden`, `unreadable`, `notApplication`.
    public func entry(_ id: String) throws(DesktopFailure) -> DesktopEntry {
        guard let path = path(of: id) else { throw .noEntry(id: id) }
        let entry = try DesktopEntry(id: id, path: path)
        guard !entry.isHidden else { throw .hidden(id: id, path: path) }
        return entry
    }

    /// The ids of all entries that are not hidden, in alphabetical order.
    public var ids: [String] {
        var found: Set<String> = []
        for directory in data { Self.collect(in: "\(directory)/applications", "", &found, depth: 0) }
        return found.filter { (try? entry($0)) != nil }.sorted()
    }

    /// A link may lead back to a directory above it.
    private static let greatestDepth = 4

    private static func collect(
        in directory: String, _ prefix: String, _ found: inout Set<String>, depth: Int
    ) {
        guard depth <= greatestDepth else { return }
        for name in TextFile.names(inDirectory: directory) where !name.hasPrefix(".") {
            if name.hasSuffix(suffix) {
                found.insert(prefix + name.dropLast(suffix.count))
            } else {
                collect(in: "\(directory)/\(name)", "\(prefix)\(name)-", &found, depth: depth + 1)
            }
        }
    }

    /// The file of an id. Nil: there is none.
    public func path(of id: String) -> String? {
        for directory in data {
            if let path = Self.path(of: id, in: directory) { return path }
        }
        return nil
    }

    /// The file of an id below one of the directories. Nil: there is none.
    static func path(of id: String, in directory: String) -> String? {
        guard isName(id) else { return nil }
        return find(Array(id.utf8)[...], in: "\(directory)/applications")
    }

    /// Each `-` of an id may separate a directory from the rest of the path.
    private static func find(_ rest: ArraySlice<UInt8>, in directory: String) -> String? {
        let name = String(decoding: rest, as: UTF8.self)
        // Hidden files are not entries, and `..` would lead out of the directory.
        guard let first = rest.first, first != UInt8(ascii: ".") else { return nil }
        if access("\(directory)/\(name)\(suffix)", F_OK) == 0 { return "\(directory)/\(name)\(suffix)" }
        for dash in rest.indices where rest[dash] == UInt8(ascii: "-") && dash > rest.startIndex {
            let below = "\(directory)/\(String(decoding: rest[..<dash], as: UTF8.self))"
            guard isDirectory(below), let path = find(rest[(dash + 1)...], in: below) else { continue }
            return path
        }
        return nil
    }

    private static func isName(_ id: String) -> Bool {
        !id.isEmpty && id.utf8.count + suffix.utf8.count <= Int(NAME_MAX)
            && !id.utf8.contains { $0 == UInt8(ascii: "/") || $0 == 0 }
    }

    /// Whether there is a directory at the path.
    static func isDirectory(_ path: String) -> Bool {
        var information = stat()
        return stat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFDIR
    }
}

import Glibc
import Linux

/// The types of files, and the relations between types: the Shared MIME-info Database specification, version 0.21.
///
/// The name of a file decides. If the name has no type, or several, the beginning of the file's content decides.
public struct MIMETypes: Sendable {
    private var globs = Globs()
    private var magic = Magic()
    private var aliases: [String: String] = [:]
    private var parents: [String: [String]] = [:]

    /// The type of data about which nothing more is known.
    public static let unknown = "application/octet-stream"
    static let plainText = "text/plain"
    private static let directory = "inode/directory"

    /// Reads the databases in the directories' `mime`. Files that cannot be read are skipped.
    public init(_ directories: BaseDirectories = BaseDirectories()) {
        for directory in directories.data.map({ "\($0)/mime/" }) {
            globs.add(Self.lines(directory + "globs2"))
            if let bytes = try? WholeFile.read(directory + "magic") { magic.add(bytes) }
            for words in Self.lines(directory + "aliases").map({ $0.split(separator: " ") })
            where words.count == 2 && aliases[String(words[0])] == nil {
                aliases[String(words[0])] = String(words[1])
            }
            for words in Self.lines(directory + "subclasses").map({ $0.split(separator: " ") })
            where words.count == 2 {
                parents[String(words[0]), default: []].append(String(words[1]))
            }
        }
        magic.sort()
    }

    private static func lines(_ path: String) -> [String] {
        let bytes = (try? WholeFile.read(path)) ?? []
        return bytes.split(separator: UInt8(ascii: "\n")).map { String(decoding: $0, as: UTF8.self) }
            .filter { $0.utf8.first != UInt8(ascii: "#") }
    }

    /// The canonical name of a type.
    public func unaliased(_ type: String) -> String { aliases[type] ?? type }

    /// A type, and the types that it is a kind of, the nearest first: an application that opens one of them opens the
    /// type, too. Every text type is a kind of plain text. `application/octet-stream` is left out, although every type
    /// is a kind of it, because that helps no one.
    public func kinds(of type: String) -> [String] {
        var kinds = [type]
        var next = 0
        while next < kinds.count {
            let kind = unaliased(kinds[next])
            next += 1
            var above = [kind] + (parents[kind] ?? [])
            if kind.utf8.starts(with: "text/".utf8) { above.append(Self.plainText) }
            kinds += above.filter { !kinds.contains($0) && ($0 != Self.unknown || $0 == type) }
        }
        return kinds
    }

    /// The types that a file's name may mean. Empty: the name does not say.
    public func types(ofName name: String) -> [String] { globs.types(of: name) }

    /// The type of a file.
    ///
    /// - Parameter path: an absolute path; symbolic links are followed.
    /// - Throws: `noFile`, `unreadable`.
    public func type(ofFile path: String) throws(DesktopFailure) -> String {
        var information = stat()
        guard stat(path, &information) == 0 else {
            if errno == ENOENT || errno == ENOTDIR { throw .noFile(path: path) }
            throw .unreadable(path: path, why: String(cString: strerror(errno)))
        }
        switch information.st_mode & S_IFMT {
        case S_IFDIR: return Self.directory
        case S_IFIFO: return "inode/fifo"
        case S_IFCHR: return "inode/chardevice"
        case S_IFBLK: return "inode/blockdevice"
        case S_IFSOCK: return "inode/socket"
        default: break
        }
        let name = path.split(separator: "/").last.map(String.init) ?? ""
        let named = types(ofName: name)
        if named.count == 1 { return named[0] }
        guard let beginning = Self.beginning(of: path, magic.length) else {
            return named.first ?? Self.unknown
        }
        return type(named: named, beginning: beginning)
    }

    /// The type of a file whose name has several types or none.
    func type(named: [String], beginning: [UInt8]) -> String {
        let found = magic.type(of: beginning)
        if named.isEmpty {
            return found?.type ?? (Self.isText(beginning) ? Self.plainText : Self.unknown)
        }
        if let found {
            // A match with a high priority decides. Otherwise the result is a type of the name that equals the match or
            // is a kind of it.
            if found.priority >= 80 { return found.type }
            if let kind = named.first(where: { kinds(of: $0).contains(unaliased(found.type)) }) {
                return kind
            }
        }
        return named[0]
    }

    private static func beginning(of path: String, _ length: Int) -> [UInt8]? {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: max(length, 1_024))
        let count = read(file, &bytes, bytes.count)
        return count < 0 ? nil : Array(bytes.prefix(count))
    }

    /// Whether the bytes contain no control characters except those that occur in texts. An empty file counts as a text
    /// that is still to be written.
    private static func isText(_ bytes: [UInt8]) -> Bool {
        bytes.allSatisfy { ($0 >= 0x20 && $0 != 0x7F) || (0x08...0x0D).contains($0) }
    }
}

import ArgumentParser
import Desktop
import Glibc

/// Prints the words that a shell can complete an argument with. Only the completion scripts call it.
struct Complete: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the words that a shell can complete an argument with.", shouldDisplay: false)

    /// What an argument may be.
    enum Words: String, ExpressibleByArgument, CaseIterable {
        /// The numbers and the ids of the applications that are registered now.
        case applications
        /// Their ids alone.
        case ids
        /// The ids of those that belong to the user.
        case own
        /// The ids of desktop entries.
        case entries
    }

    @OptionGroup var bus: BusOptions
    @Argument var words: Words

    func run() throws {
        for word in try found() { Terminal.emit(Line(word)) }
    }

    private func found() throws -> [String] {
        switch words {
        case .entries: return EntryDirectories().ids
        case .applications: return try rows().flatMap { [String($0.number), $0.id] }
        case .ids: return Self.distinct(try rows().map(\.id))
        case .own: return Self.distinct(try rows().filter { $0.uid == getuid() }.map(\.id))
        }
    }

    private func rows() throws -> [Client.Row] { try bus.connect().applications() }

    private static func distinct(_ words: [String]) -> [String] { Set(words).sorted() }
}

extension CompletionKind {
    /// Completes with the numbers and ids of the applications that are registered now.
    static var applications: CompletionKind { words(.applications) }
    /// Completes with their ids, where digits are not the number of an application.
    static var applicationIDs: CompletionKind { words(.ids) }
    /// Completes with the ids of the user's own applications.
    static var ownApplicationIDs: CompletionKind { words(.own) }
    /// Completes with the ids of desktop entries.
    static var desktopEntries: CompletionKind { words(.entries) }

    private static func words(_ words: Complete.Words) -> CompletionKind {
        .shellCommand("appstatectl complete \(words.rawValue) 2>/dev/null")
    }
}

extension EntryDirectories {
    /// The ids of all entries that are not hidden, in alphabetical order. A subdirectory becomes part of the id:
    /// `kde4/foo.desktop` is `kde4-foo`.
    var ids: [String] {
        var found: Set<String> = []
        for directory in data { Self.collect("\(directory)/applications", "", &found, depth: 0) }
        return found.filter { (try? entry($0)) != nil }.sorted()
    }

    private static let suffix = ".desktop"
    /// A link may lead back to a directory above it.
    private static let greatestDepth = 4

    private static func collect(_ path: String, _ prefix: String, _ found: inout Set<String>, depth: Int) {
        guard depth <= greatestDepth, let directory = opendir(path) else { return }
        defer { closedir(directory) }
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name.hasPrefix(".") { continue }
            if name.hasSuffix(suffix) {
                found.insert(prefix + name.dropLast(suffix.count))
            } else {
                collect("\(path)/\(name)", "\(prefix)\(name)-", &found, depth: depth + 1)
            }
        }
    }
}

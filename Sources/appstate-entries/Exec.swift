import AppStateContract
import CGIO

/// The command line in an entry's `Exec`, with field codes for what it opens ("The Exec key" of the Desktop Entry
/// Specification). GIO expands them only for a process that it starts itself, and ours must wait at its gate.
struct Exec {
    private let entry: Entry
    private let exec: String
    private var words: [String]

    init(_ exec: String, of entry: Entry) throws(Failure) {
        (self.entry, self.exec) = (entry, exec)
        switch Self.words(exec) {
        case .success(let words): self.words = words
        case .failure(let why): throw Self.broken(entry.id, exec, why.text)
        }
    }

    /// The words of a command line, without their quotation marks.
    static func words(_ exec: String) -> Result<[String], Unquoted> {
        var count: Int32 = 0
        var list: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        var error: UnsafeMutablePointer<GError>?
        guard g_shell_parse_argv(exec, &count, &list, &error) != 0 else {
            defer { g_error_free(error) }
            return .failure(Unquoted(text: error.map { String(cString: $0.pointee.message) } ?? ""))
        }
        defer { g_strfreev(list) }
        return .success((0..<Int(count)).compactMap { list?[$0].map { String(cString: $0) } })
    }

    struct Unquoted: Error { let text: String }

    static func broken(_ id: String, _ exec: String, _ why: String) -> Failure {
        Failure(.invalidArgs, "Exec of \(id) is not a command line: \(why): \(exec)")
    }

    /// The command lines. There are several if the program takes one file or URL at a time.
    ///
    /// If there is no field code for files, each is added at the end of a command line of its own, as GIO and KDE do.
    func lines(opening urls: [String]) throws(Failure) -> [[String]] {
        var line = self
        if !urls.isEmpty, !has("fFuU") {
            if let url = urls.first(where: { FileURL.scheme(of: $0) != nil && FileURL.path(of: $0) == nil }) {
                throw Failure(
                    .invalidArgs, "Exec of \(entry.id) has no %u or %U for a URL such as \(url): \(exec)")
            }
            line.words.append("%f")
        }
        let isOneByOne = line.has("fu") && urls.count > 1
        return try (isOneByOne ? urls.map { [$0] } : [urls]).map { (urls) throws(Failure) in
            let words = try line.words.map { (word) throws(Failure) in try line.expanded(word, urls) }
                .flatMap(\.self)
            guard words.first?.isEmpty == false else {
                throw Self.broken(entry.id, exec, "it names no program")
            }
            return words
        }
    }

    private func has(_ codes: String) -> Bool {
        words.contains { word in
            var rest = word.unicodeScalars[...]
            while let scalar = rest.popFirst() {
                if scalar == "%", let code = rest.popFirst(), codes.unicodeScalars.contains(code) {
                    return true
                }
            }
            return false
        }
    }

    /// The words that a word becomes: none, if it consists of a field code without a value.
    private func expanded(_ word: String, _ urls: [String]) throws(Failure) -> [String] {
        var words = word.isEmpty ? [""] : []
        var rest = word.unicodeScalars[...]
        while let scalar = rest.popFirst() {
            var values = [String(scalar)]
            if scalar == "%" { values = try self.values(of: rest.popFirst(), urls) }
            // The first value continues the word.
            if let last = words.last, let first = values.first {
                words[words.count - 1] = last + first
                values.removeFirst()
            }
            words += values
        }
        return words
    }

    private func values(of code: Unicode.Scalar?, _ urls: [String]) throws(Failure) -> [String] {
        switch code {
        case "%": return ["%"]
        case "f": return try urls.prefix(1).map(path)
        case "F": return try urls.map(path)
        case "u": return try urls.prefix(1).map(url)
        case "U": return try urls.map(url)
        case "i": return entry.icon.map { ["--icon", $0] } ?? []
        case "c": return [entry.name]
        case "k": return [entry.path]
        // Deprecated.
        case "d", "D", "n", "N", "v", "m": return []
        default:
            throw Failure(
                .invalidArgs,
                "Exec of \(entry.id) has an unknown field code %\(code.map { String($0) } ?? ""): \(exec)")
        }
    }

    private func path(_ url: String) throws(Failure) -> String {
        if let path = FileURL.path(of: url) { return path }
        guard FileURL.scheme(of: url) != nil else { throw Handler.notURL(url) }
        throw Failure(.invalidArgs, "\(entry.id) opens files of this machine only, not \(url)")
    }

    private func url(_ url: String) throws(Failure) -> String {
        if url.utf8.first == UInt8(ascii: "/") { return FileURL.url(of: url) }
        guard FileURL.scheme(of: url) != nil else { throw Handler.notURL(url) }
        return url
    }
}

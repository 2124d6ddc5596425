import Glibc

/// Maps file names to types: the files `globs2` of the Shared MIME-info Database.
struct Globs: Sendable {
    private struct Glob: Sendable {
        let weight: Int
        let type: String
        /// The pattern, without a `*` at its beginning if that is its only special character.
        let pattern: String
        let isCaseSensitive: Bool
    }

    private var literals: [String: [Glob]] = [:]
    private var suffixes: [String: [Glob]] = [:]
    private var patterns: [Glob] = []
    /// Types for which the patterns of later directories are ignored.
    private var closed: Set<String> = []

    /// The pattern in a line that says that the type's patterns in later directories do not count.
    private static let noGlobs = "__NOGLOBS__"

    /// Adds the lines of one directory's file. Directories must be added in order of precedence.
    mutating func add(_ lines: [String]) {
        var closing: Set<String> = []
        for line in lines {
            // WEIGHT:TYPE:PATTERN[:FLAGS]
            let fields = line.split(separator: ":", omittingEmptySubsequences: false).map(String.init)
            guard fields.count >= 3, let weight = Int(fields[0]), !closed.contains(fields[1]) else {
                continue
            }
            if fields[2] == Self.noGlobs {
                closing.insert(fields[1])
                continue
            }
            let isCaseSensitive = fields.count > 3 && fields[3].split(separator: ",").contains("cs")
            add(fields[1], fields[2], weight, isCaseSensitive)
        }
        closed.formUnion(closing)
    }

    private mutating func add(_ type: String, _ pattern: String, _ weight: Int, _ isCaseSensitive: Bool) {
        func isPlain(_ text: Substring.UTF8View) -> Bool { !text.contains { "*?[\\".utf8.contains($0) } }
        func glob(_ pattern: String) -> Glob {
            Glob(weight: weight, type: type, pattern: pattern, isCaseSensitive: isCaseSensitive)
        }
        if isPlain(pattern[...].utf8) {
            literals[pattern, default: []].append(glob(pattern))
        } else if pattern.utf8.first == UInt8(ascii: "*"), isPlain(pattern.utf8.dropFirst()) {
            let suffix = String(pattern.dropFirst())
            suffixes[suffix, default: []].append(glob(suffix))
        } else {
            patterns.append(glob(pattern))
        }
    }

    /// The types of the longest among the patterns with the highest weight. A pattern that equals the name takes
    /// precedence over all others.
    func types(of name: String) -> [String] {
        let lower = String(
            decoding: name.utf8.map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 }, as: UTF8.self)
        for (name, isExact) in [(name, true), (lower, false)] {
            let isMeant: (Glob) -> Bool = { isExact || !$0.isCaseSensitive }
            let whole = (literals[name] ?? []).filter(isMeant)
            if !whole.isEmpty { return Self.best(whole.map { ($0, name.utf8.count) }) }
        }
        for (name, isExact) in [(name, true), (lower, false)] {
            let isMeant: (Glob) -> Bool = { isExact || !$0.isCaseSensitive }
            var found: [(Glob, Int)] = []
            var rest = Array(name.utf8)[...]
            while !rest.isEmpty {
                let globs = (suffixes[String(decoding: rest, as: UTF8.self)] ?? []).filter(isMeant)
                found += globs.map { ($0, $0.pattern.utf8.count + 1) }
                rest = rest.dropFirst()
            }
            for glob in patterns where isMeant(glob) && fnmatch(glob.pattern, name, 0) == 0 {
                found.append((glob, glob.pattern.utf8.count))
            }
            if !found.isEmpty { return Self.best(found) }
        }
        return []
    }

    private static func best(_ found: [(Glob, Int)]) -> [String] {
        let weight = found.map { $0.0.weight }.max()
        let heavy = found.filter { $0.0.weight == weight }
        let length = heavy.map { $0.1 }.max()
        var types: [String] = []
        for (glob, own) in heavy where own == length && !types.contains(glob.type) { types.append(glob.type) }
        return types
    }
}

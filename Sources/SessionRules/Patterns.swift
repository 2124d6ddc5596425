import Glibc
import Linux

/// Patterns of application ids, as in fnmatch(3). Patterns that begin with `!` exclude ids that others
/// include, in any order; exclusions alone exclude from everything.
public struct Patterns: Equatable, Sendable {
    private var included: [String] = []
    private var excluded: [String] = []

    /// Creates an empty set.
    public init() {}

    /// Every id matches.
    static let everything = Patterns(included: ["*"])

    private init(included: [String]) { self.included = included }

    /// Nothing matches.
    public var isEmpty: Bool { included.isEmpty && excluded.isEmpty }

    /// Adds a pattern; returns what is wrong with it.
    public mutating func add(_ word: String) -> String? {
        let isExclusion = word.hasPrefix("!")
        let pattern = isExclusion ? String(word.dropFirst()) : word
        guard !pattern.isEmpty, pattern.utf8.allSatisfy(Self.allows) else {
            return "\"\(word.excerpt)\" cannot match any application's id: "
                + "ids consist of A-Z, a-z, 0-9, \".\", \"_\" and \"-\""
        }
        // fnmatch(3) would treat the bracket as a character of the id, but ids have no brackets.
        guard Self.closesBrackets(pattern) else {
            return "\"\(word.excerpt)\" cannot match any application's id: a bracket is not closed"
        }
        if isExclusion { excluded.append(pattern) } else { included.append(pattern) }
        return nil
    }

    /// The characters of ids, and those that replace them in patterns.
    private static func allows(_ byte: UInt8) -> Bool {
        switch Character(Unicode.Scalar(byte)) {
        case "A"..."Z", "a"..."z", "0"..."9", ".", "_", "-", "*", "?", "[", "]", "!", "^", ":": true
        default: false
        }
    }

    /// A `]` in first place belongs to the set, a class such as `[:digit:]` has one of its own, and a backslash makes
    /// the next character a plain one.
    static func closesBrackets(_ pattern: String) -> Bool {
        var rest = Substring(pattern)
        while let place = rest.firstIndex(where: { "[\\".contains($0) }) {
            let isEscape = rest[place] == "\\"
            rest = rest[place...].dropFirst()
            if isEscape {
                rest = rest.dropFirst()
                continue
            }
            if let sign = rest.first, "!^".contains(sign) { rest.removeFirst() }
            var isFirst = true
            while isFirst || rest.first != "]" {
                guard let sign = rest.popFirst() else { return false }
                isFirst = false
                if sign == "\\" { rest = rest.dropFirst() }
                if sign == "[", rest.first == ":", let end = rest.dropFirst().firstIndex(of: ":") {
                    let after = rest[end...].dropFirst()
                    if after.first == "]" { rest = after.dropFirst() }
                }
            }
            rest = rest.dropFirst()
        }
        return true
    }

    /// Whether one of an application's names is included, and none is excluded.
    public func matches(anyOf names: Set<String>) -> Bool {
        func matches(_ pattern: String) -> Bool { names.contains { fnmatch(pattern, $0, 0) == 0 } }
        if excluded.contains(where: matches) { return false }
        return included.isEmpty ? !excluded.isEmpty : included.contains(where: matches)
    }
}

import Glibc
import Linux

/// Patterns of application ids, as fnmatch(3) understands them; those that begin with `!` take out what others let in,
/// in whatever order they stand.
public struct Patterns: Equatable {
    private var included: [String] = []
    private var excluded: [String] = []

    /// None.
    public init() {}

    /// Nothing matches.
    public var isEmpty: Bool { included.isEmpty }

    /// Takes one more; answers what is wrong with it.
    public mutating func add(_ word: String) -> String? {
        let isExclusion = word.hasPrefix("!")
        let pattern = isExclusion ? String(word.dropFirst()) : word
        guard !pattern.isEmpty, pattern.utf8.allSatisfy(Self.allows) else {
            return "\"\(word.excerpt)\" can match no application's id: "
                + "those are of A-Z, a-z, 0-9, \".\", \"_\" and \"-\""
        }
        // fnmatch(3) would take the bracket for one of the id's own, which has none.
        guard Self.closesBrackets(pattern) else {
            return "\"\(word.excerpt)\" can match no application's id: a bracket is not closed"
        }
        if isExclusion { excluded.append(pattern) } else { included.append(pattern) }
        return nil
    }

    /// What ids consist of, and what stands for it in patterns.
    private static func allows(_ byte: UInt8) -> Bool {
        switch Character(Unicode.Scalar(byte)) {
        case "A"..."Z", "a"..."z", "0"..."9", ".", "_", "-", "*", "?", "[", "]", "!", "^", ":": true
        default: false
        }
    }

    /// A `]` that comes first is one of the set, and a class such as `[:digit:]` has one of its own.
    private static func closesBrackets(_ pattern: String) -> Bool {
        var rest = Substring(pattern)
        while let bracket = rest.firstIndex(of: "[") {
            rest = rest[bracket...].dropFirst()
            if let sign = rest.first, "!^".contains(sign) { rest.removeFirst() }
            var isFirst = true
            while isFirst || rest.first != "]" {
                guard let sign = rest.popFirst() else { return false }
                isFirst = false
                if sign == "[", rest.first == ":", let end = rest.dropFirst().firstIndex(of: ":") {
                    let after = rest[end...].dropFirst()
                    if after.first == "]" { rest = after.dropFirst() }
                }
            }
            rest = rest.dropFirst()
        }
        return true
    }

    /// Whether an application is let in by one of its names, and taken out by none.
    public func matches(anyOf names: Set<String>) -> Bool {
        func matches(_ pattern: String) -> Bool { names.contains { fnmatch(pattern, $0, 0) == 0 } }
        return included.contains(where: matches) && !excluded.contains(where: matches)
    }
}

import Linux

/// The text of a configuration in which one rule is changed and everything else stays: comments, order, blanks.
public struct RuleFile: Sendable {
    private var lines: [String]

    /// - Parameter text: the text of the file; empty if there is none.
    public init(_ text: String) {
        // A carriage return and a line feed are one Character.
        lines = text.split(omittingEmptySubsequences: false) { $0 == "\n" || $0 == "\r\n" }.map(String.init)
        if lines.last == "" { lines.removeLast() }
    }

    /// The text as it is now.
    public var text: String { lines.map { $0 + "\n" }.joined() }

    /// Sets keys of a rule. Adds the rule if it does not exist.
    ///
    /// - Parameter assignments: the keys and their values; an empty value removes the key.
    public mutating func set(_ assignments: [(key: String, value: String)], in rule: Rule) {
        for (key, value) in assignments {
            // A key may occur twice, and in two sections of the same name.
            let continued = continued
            for index in sections(of: rule).joined().reversed()
            where !continued[index] && self.key(at: index) == key {
                let end = continued[(index + 1)...].firstIndex(of: false) ?? lines.count
                lines.removeSubrange(index..<end)
            }
            guard !value.isEmpty else { continue }
            if sections(of: rule).isEmpty {
                if !lines.isEmpty { lines.append("") }
                lines.append("[\(rule.section)]")
            }
            guard let section = sections(of: rule).last else { continue }
            // Before what separates it from the next section.
            var place = section.upperBound
            while place > section.lowerBound + 1, lines[place - 1].trimmed.isEmpty { place -= 1 }
            lines.insert("\(key)=\(value)", at: place)
        }
    }

    /// Removes a rule.
    ///
    /// - Returns: whether there was one.
    public mutating func remove(_ rule: Rule) -> Bool {
        let found = sections(of: rule)
        for section in found.reversed() { lines.removeSubrange(section) }
        while lines.last?.trimmed.isEmpty == true { lines.removeLast() }
        return !found.isEmpty
    }

    /// The lines of each section of the rule, including its name.
    private func sections(of rule: Rule) -> [Range<Int>] {
        let continued = continued
        let heads = lines.indices.filter { !continued[$0] && lines[$0].trimmed.hasPrefix("[") }
        return heads.enumerated().compactMap { index, head in
            let line = lines[head].trimmed
            guard line.hasSuffix("]"),
                Rule.pattern(ofSection: String(line.dropFirst().dropLast())) == rule.pattern
            else { return nil }
            return head..<(index + 1 < heads.count ? heads[index + 1] : lines.count)
        }
    }

    /// Which lines belong to the one before: systemd.syntax(7). So do comments among them.
    private var continued: [Bool] {
        var isOpen = false
        return lines.map { line in
            let isContinued = isOpen
            let isComment = line.trimmed.first.map { $0 == "#" || $0 == ";" } ?? false
            if !isComment { isOpen = line.last == "\\" }
            return isContinued
        }
    }

    private func key(at index: Int) -> String? {
        let line = lines[index]
        guard let first = line.trimmed.first, !"#;[".contains(first), let equals = line.firstIndex(of: "=")
        else {
            return nil
        }
        return String(line[..<equals]).trimmed
    }
}

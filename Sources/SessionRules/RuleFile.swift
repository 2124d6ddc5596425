import Linux

/// The text of a configuration in which one rule is changed and everything else stays: comments, order, blanks.
public struct RuleFile: Sendable {
    private var lines: [String]
    private let lineEnd: String

    /// - Parameter text: the text of the file; empty if there is none.
    public init(_ text: String) {
        // A carriage return and a line feed are one Character.
        lines = text.withoutByteOrderMark.split(omittingEmptySubsequences: false) {
            $0 == "\n" || $0 == "\r\n"
        }.map(String.init)
        if lines.last == "" { lines.removeLast() }
        lineEnd = text.contains("\r\n" as Character) ? "\r\n" : "\n"
    }

    /// The text as it is now.
    public var text: String { lines.map { $0 + lineEnd }.joined() }

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
            let place = place(in: section)
            // An empty line ends a value that the file leaves open.
            let open = isOpen(before: place) ? [""] : []
            lines.insert(contentsOf: open + ["\(key)=\(value)"], at: place)
        }
    }

    /// Removes a rule. The lines after its last assignment stay, because comments there may belong to the
    /// next section.
    ///
    /// - Returns: whether there was one.
    public mutating func remove(_ rule: Rule) -> Bool {
        let found = sections(of: rule)
        for section in found.reversed() {
            let continued = continued
            let last = section.last { continued[$0] || !isBlank($0) && !isComment($0) } ?? section.lowerBound
            var end = last + 1
            if section.lowerBound == 0 || isBlank(section.lowerBound - 1) {
                while end < section.upperBound, isBlank(end) { end += 1 }
            }
            lines.removeSubrange(section.lowerBound..<end)
        }
        while lines.last?.trimmed.isEmpty == true { lines.removeLast() }
        return !found.isEmpty
    }

    /// Where a further assignment belongs: before the lines that separate the section from the next one, and
    /// before comments directly above those.
    private func place(in section: Range<Int>) -> Int {
        let continued = continued
        var place = section.upperBound
        if place < lines.count {
            var above = place
            while above > section.lowerBound + 1, isComment(above - 1) { above -= 1 }
            if isBlank(above - 1) { place = above }
        }
        while place > section.lowerBound + 1, isBlank(place - 1), !continued[place - 1] { place -= 1 }
        return place
    }

    private func isBlank(_ index: Int) -> Bool { lines[index].trimmed.isEmpty }

    private func isComment(_ index: Int) -> Bool {
        lines[index].trimmed.first.map { $0 == "#" || $0 == ";" } ?? false
    }

    /// The lines of each section whose pattern means the same, including its name.
    private func sections(of rule: Rule) -> [Range<Int>] {
        let continued = continued
        let heads = lines.indices.filter { !continued[$0] && lines[$0].trimmed.hasPrefix("[") }
        return heads.enumerated().compactMap { index, head in
            let line = lines[head].trimmed
            guard line.hasSuffix("]"),
                let pattern = Rule.pattern(ofSection: String(line.dropFirst().dropLast())),
                rule.matchesAs(Rule(pattern))
            else { return nil }
            return head..<(index + 1 < heads.count ? heads[index + 1] : lines.count)
        }
    }

    /// Which lines belong to the one before: systemd.syntax(7). So do comments among them.
    private var continued: [Bool] {
        var isOpen = false
        return lines.indices.map { index in
            let isContinued = isOpen
            if !isComment(index) { isOpen = lines[index].last == "\\" }
            return isContinued
        }
    }

    private func isOpen(before place: Int) -> Bool {
        lines[..<place].indices.last { !isComment($0) }.map { lines[$0].last == "\\" } ?? false
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

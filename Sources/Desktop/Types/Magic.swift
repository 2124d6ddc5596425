/// The bytes that files of a type begin with: the files `magic` of the Shared MIME-info Database.
struct Magic: Sendable {
    /// One line: the bytes to find, and the lines below it, one of which must match, too.
    private struct Rule: Sendable {
        let offset: Int
        let range: Int
        let value: [UInt8]
        let mask: [UInt8]?
        var below: [Rule] = []

        var reach: Int { max(offset + range + value.count, below.map(\.reach).max() ?? 0) }

        func holds(_ bytes: [UInt8]) -> Bool {
            (offset..<(offset + range)).contains { isFound(bytes, $0) }
                && (below.isEmpty || below.contains { $0.holds(bytes) })
        }

        private func isFound(_ bytes: [UInt8], _ place: Int) -> Bool {
            guard place + value.count <= bytes.count else { return false }
            return value.indices.allSatisfy { index in
                let mask = mask?[index] ?? 0xFF
                return bytes[place + index] & mask == value[index] & mask
            }
        }
    }

    private struct Section: Sendable {
        let type: String
        let priority: Int
        var rules: [Rule] = []
    }

    private var sections: [Section] = []
    private static let header = Array("MIME-Magic\0\n".utf8)
    /// The maximum number of bytes of a file that are examined.
    private static let most = 16_384

    /// How many bytes of a file must be examined.
    var length: Int { min(Self.most, sections.flatMap(\.rules).map(\.reach).max() ?? 0) }

    /// Adds one directory's file. Everything after the first part that violates the format is ignored.
    mutating func add(_ bytes: [UInt8]) {
        guard bytes.starts(with: Self.header) else { return }
        var reader = Reader(rest: bytes[Self.header.count...])
        while let section = reader.section() { sections.append(section) }
    }

    /// Must be called after the last `add`. Sections of equal priority keep their order.
    mutating func sort() {
        sections = sections.enumerated().sorted {
            ($1.element.priority, $0.offset) < ($0.element.priority, $1.offset)
        }.map(\.element)
    }

    /// The type and its priority. A priority of 80 or more outweighs the name.
    func type(of bytes: [UInt8]) -> (type: String, priority: Int)? {
        sections.first { $0.rules.contains { $0.holds(bytes) } }.map { ($0.type, $0.priority) }
    }

    private struct Reader {
        var rest: ArraySlice<UInt8>

        /// `[PRIORITY:TYPE]` and the lines after it.
        mutating func section() -> Section? {
            guard take("["), let priority = number(), take(":"),
                let end = rest.firstIndex(of: UInt8(ascii: "]"))
            else { return nil }
            var section = Section(type: String(decoding: rest[..<end], as: UTF8.self), priority: priority)
            rest = rest[(end + 1)...]
            guard take("\n") else { return nil }
            var lines: [(indent: Int, rule: Rule)] = []
            while let first = rest.first, first != UInt8(ascii: "[") {
                guard let line = line() else { return nil }
                if let line = line.rule.map({ (line.indent, $0) }) { lines.append(line) }
            }
            section.rules = Self.tree(lines[...], 0)
            return section
        }

        private static func tree(_ lines: ArraySlice<(indent: Int, rule: Rule)>, _ indent: Int) -> [Rule] {
            var rules: [Rule] = []
            var next = lines.startIndex
            while next < lines.endIndex {
                var rule = lines[next].rule
                let end = lines[(next + 1)...].firstIndex { $0.indent <= indent } ?? lines.endIndex
                rule.below = tree(lines[(next + 1)..<end], indent + 1)
                rules.append(rule)
                next = end
            }
            return rules
        }

        /// `[INDENT]>OFFSET=LENGTH VALUE[&MASK][~WORD][+RANGE]`; the length has two bytes. The rule is nil if the line
        /// has a part that we do not know.
        private mutating func line() -> (indent: Int, rule: Rule?)? {
            let indent = number() ?? 0
            guard take(">"), let offset = number(), take("="), rest.count >= 2 else { return nil }
            let count = Int(rest.removeFirst()) << 8 | Int(rest.removeFirst())
            guard var value = bytes(count) else { return nil }
            var mask: [UInt8]?
            var range = 1
            if take("&") {
                guard let found = bytes(count) else { return nil }
                mask = found
            }
            if take("~") {
                guard let word = number() else { return nil }
                // The file has words in network byte order, so a little-endian machine must swap their bytes.
                value = Self.swapped(value, word)
                mask = mask.map { Self.swapped($0, word) }
            }
            if take("+") {
                guard let found = number() else { return nil }
                range = found
            }
            let isKnown = rest.first == UInt8(ascii: "\n")
            guard let end = rest.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
            rest = rest[(end + 1)...]
            guard isKnown, offset + range + count <= Magic.most * 2 else { return (indent, nil) }
            return (indent, Rule(offset: offset, range: range, value: value, mask: mask))
        }

        private static func swapped(_ bytes: [UInt8], _ word: Int) -> [UInt8] {
            guard word > 1, bytes.count % word == 0, 1.littleEndian == 1 else { return bytes }
            return stride(from: 0, to: bytes.count, by: word).flatMap { bytes[$0..<($0 + word)].reversed() }
        }

        private mutating func take(_ text: Unicode.Scalar) -> Bool {
            guard rest.first == UInt8(ascii: text) else { return false }
            rest.removeFirst()
            return true
        }

        private mutating func bytes(_ count: Int) -> [UInt8]? {
            guard rest.count >= count else { return nil }
            defer { rest = rest.dropFirst(count) }
            return Array(rest.prefix(count))
        }

        private mutating func number() -> Int? {
            let digits = rest.prefix { (0x30...0x39).contains($0) }.prefix(9)
            rest = rest[digits.endIndex...]
            return Int(String(decoding: digits, as: UTF8.self))
        }
    }
}

/// The lines of a file in the format of systemd.syntax(7).
public struct ConfigurationFile: Sendable {
    /// `Key=value` and its place, without the surrounding white space.
    public struct Assignment: Equatable, Sendable {
        public let line: Int
        public let section: String
        public let key: String
        public let value: String
    }

    /// A line that was rejected, and is ignored.
    public struct Complaint: Equatable, Sendable, CustomStringConvertible {
        public let file: String
        /// 0: the complaint is about the whole file.
        public let line: Int
        /// Empty if the line is not an assignment.
        public let key: String
        public let problem: String

        /// `file:line: key=: problem`; `file: problem` if the complaint is about the whole file.
        public var description: String {
            (line == 0 ? "\(file): " : "\(file):\(line): ") + (key.isEmpty ? problem : "\(key)=: \(problem)")
        }
    }

    /// For complaints.
    private let name: String
    public private(set) var assignments: [Assignment] = []
    /// Sections in the order they were opened, with the line of each.
    public private(set) var sections: [(name: String, line: Int)] = []
    public private(set) var complaints: [Complaint] = []

    /// Reads a file. Never fails: a file that cannot be read is empty, with a complaint. /dev/null, or a link to it, is
    /// an empty file: systemd masks its own files in this way (systemd.unit(5)).
    public init(reading path: String, mayBeMissing: Bool) {
        if TextFile.isNull(path) {
            self = ConfigurationFile("", name: path)
            return
        }
        do throws(KernelFailure) {
            self = ConfigurationFile(try TextFile.read(path), name: path)
        } catch {
            self = ConfigurationFile("", name: path)
            if !error.isNoSuchFile || !mayBeMissing { complain(0, "", "\(error)") }
        }
    }

    /// Reads a text; invalid lines become complaints.
    ///
    /// - Parameter name: the file's name, for complaints.
    public init(_ text: String, name: String) {
        self.name = name
        var section: String?
        var continued: (line: Int, text: String)?
        // A carriage return and a line feed are one Character.
        let lines = text.withoutByteOrderMark.split(omittingEmptySubsequences: false) {
            $0 == "\n" || $0 == "\r\n"
        }
        for (index, raw) in lines.enumerated() {
            var line = index + 1
            var body = raw
            let isComment = body.first { !$0.isWhitespace }.map { $0 == "#" || $0 == ";" } ?? false
            // systemd.syntax(7): comment lines within a continued line are left out of it.
            if isComment { continue }
            let continues = body.last == "\\"
            if continues { body = body.dropLast() }
            var whole = String(body)
            if let before = continued {
                whole = before.text + " " + whole
                line = before.line
            }
            if continues {
                continued = (line, whole)
                continue
            }
            continued = nil
            parse(whole.trimmed, line: line, section: &section)
        }
        if let continued { parse(continued.text.trimmed, line: continued.line, section: &section) }
    }

    private mutating func parse(_ text: String, line: Int, section: inout String?) {
        if text.isEmpty { return }
        if text.first == "[" {
            guard text.last == "]", text.count > 2 else {
                section = nil
                complain(line, "", "\(text.excerpt) is not a section")
                return
            }
            let name = String(text.dropFirst().dropLast())
            section = name
            sections.append((name, line))
            return
        }
        guard let equals = text.firstIndex(of: "=") else {
            complain(line, "", "\"\(text.excerpt)\" is neither a section nor Key=value")
            return
        }
        let key = String(text[..<equals]).trimmed
        guard let section else {
            complain(line, key, "is outside of any section")
            return
        }
        let value = String(text[text.index(after: equals)...]).trimmed
        assignments.append(Assignment(line: line, section: section, key: key, value: value))
    }

    private mutating func complain(_ line: Int, _ key: String, _ problem: String) {
        complaints.append(Complaint(file: name, line: line, key: key.excerpt, problem: problem))
    }

    /// Stores the values of the file in `target`.
    ///
    /// - Parameters:
    ///   - defaults: the values that empty values restore.
    ///   - rows: the keys of a section; nil: there is no such section.
    /// - Returns: the rejected lines; their targets stay unchanged.
    public func apply<Target>(
        to target: inout Target, defaults: Target, rows: (String) -> [ConfigurationRow<Target>]?
    ) -> [Complaint] {
        var file = self
        var known: [String: [ConfigurationRow<Target>]] = [:]
        for (section, line) in sections {
            known[section] = rows(section)
            if known[section] == nil { file.complain(line, "", "[\(section.excerpt)] is not a section") }
        }
        for assignment in assignments {
            guard let rows = known[assignment.section] else { continue }
            let problems =
                rows.first { $0.key == assignment.key }?.apply(&target, defaults, assignment.value)
                ?? ["no such key in [\(assignment.section.excerpt)]"]
            for problem in problems { file.complain(assignment.line, assignment.key, problem) }
        }
        return file.complaints
    }
}

extension String {
    /// Without white space at both ends.
    public var trimmed: String {
        let start = drop { $0.isWhitespace }
        guard let end = start.lastIndex(where: { !$0.isWhitespace }) else { return "" }
        return String(start[...end])
    }

    /// The part of it that a complaint repeats: a line may be as long as a file. Counted in scalars, of which a
    /// character may have any number.
    public var excerpt: String {
        let beginning = unicodeScalars.prefix(80)
        return beginning.endIndex == unicodeScalars.endIndex ? self : String(beginning) + "…"
    }

    /// Editors of other systems put a byte order mark at the beginning, where it means nothing.
    public var withoutByteOrderMark: Substring {
        unicodeScalars.first == "\u{FEFF}" ? Substring(unicodeScalars.dropFirst()) : self[...]
    }
}

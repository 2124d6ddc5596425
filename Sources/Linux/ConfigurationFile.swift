/// The lines of a file in the form of systemd.syntax(7).
public struct ConfigurationFile: Sendable {
    /// `Key=value`, where it stands; without the white space around the two.
    public struct Assignment: Equatable, Sendable {
        public let line: Int
        public let section: String
        public let key: String
        public let value: String
    }

    /// A line that was not taken; the default stands.
    public struct Complaint: Equatable, Sendable, CustomStringConvertible {
        public let file: String
        /// 0: it is about the whole file.
        public let line: Int
        /// Empty where the line is no assignment.
        public let key: String
        public let problem: String

        public init(file: String, line: Int, key: String, problem: String) {
            self.file = file
            self.line = line
            self.key = key
            self.problem = problem
        }

        /// `file:line: key=: problem`
        public var description: String {
            "\(file):\(line): " + (key.isEmpty ? problem : "\(key)=: \(problem)")
        }
    }

    public private(set) var assignments: [Assignment] = []
    /// Sections in the order they were opened, with the line of each.
    public private(set) var sections: [(name: String, line: Int)] = []
    public private(set) var complaints: [Complaint] = []

    /// Reads a text; lines that make no sense become complaints.
    ///
    /// - Parameter name: of the file, for complaints.
    public init(_ text: String, name: String) {
        var section: String?
        var continued: (line: Int, text: String)?
        // A carriage return and a line feed are one Character.
        let lines = text.split(omittingEmptySubsequences: false) { $0 == "\n" || $0 == "\r\n" }
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
            take(whole.trimmed, line: line, file: name, section: &section)
        }
        if let continued { take(continued.text.trimmed, line: continued.line, file: name, section: &section) }
    }

    private mutating func take(_ text: String, line: Int, file: String, section: inout String?) {
        if text.isEmpty { return }
        if text.first == "[" {
            guard text.last == "]", text.count > 2 else {
                section = nil
                complain(file, line, "", "\(text) is no section")
                return
            }
            let name = String(text.dropFirst().dropLast())
            section = name
            sections.append((name, line))
            return
        }
        guard let equals = text.firstIndex(of: "=") else {
            complain(file, line, "", "\"\(text)\" is neither a section nor Key=value")
            return
        }
        let key = String(text[..<equals]).trimmed
        guard let section else {
            complain(file, line, key, "stands outside of any section")
            return
        }
        let value = String(text[text.index(after: equals)...]).trimmed
        assignments.append(Assignment(line: line, section: section, key: key, value: value))
    }

    private mutating func complain(_ file: String, _ line: Int, _ key: String, _ problem: String) {
        complaints.append(Complaint(file: file, line: line, key: key, problem: problem))
    }
}

extension String {
    /// Without white space at both ends.
    public var trimmed: String {
        let start = drop { $0.isWhitespace }
        guard let end = start.lastIndex(where: { !$0.isWhitespace }) else { return "" }
        return String(start[...end])
    }
}

import Glibc
import Linux

/// The agent's own configuration: where it stands, and what it says.
struct Configuration {
    typealias Complaint = ConfigurationFile.Complaint

    /// Where the configuration is read from.
    enum Source: Equatable {
        /// Each file on top of those before it; any may be missing.
        case layers([String])
        /// One file alone; that it is missing is a complaint.
        case file(String)

        /// The administrator's, and the user's on top of it (XDG Base Directory Specification).
        static var system: Source {
            func directory(_ name: String, _ below: String = "") -> String? {
                Environment[name].flatMap { $0.hasPrefix("/") ? $0 + below : nil }
            }
            let own = directory("XDG_CONFIG_HOME") ?? directory("HOME", "/.config")
            return .layers((["/etc", own].compactMap(\.self)).map { $0 + "/appstated/session.conf" })
        }
    }

    /// How those are registered that are adopted: `suspension` of org.appstate1.Manager.Register.
    enum Suspension: String, CaseIterable {
        case manual
        case automatic
        case never
    }

    /// `Adopt=`
    private(set) var adopt = Patterns()
    /// `AdoptSuspension=`
    private(set) var suspension = Suspension.manual
    private(set) var complaints: [Complaint] = []

    private init() {}

    /// Reads what is there. Never fails: what cannot be taken becomes a complaint.
    init(reading source: Source) {
        switch source {
        case .file(let path): take(ConfigurationFile(reading: path, mayBeMissing: false))
        case .layers(let paths):
            for path in paths { take(ConfigurationFile(reading: path, mayBeMissing: true)) }
        }
    }

    private mutating func take(_ file: ConfigurationFile) {
        let complaints = file.apply(to: &self, defaults: Configuration()) { section in
            guard section == "Session" else { return nil }
            return [
                ConfigurationRow("Adopt", list: \.adopt) { words, patterns in
                    words.compactMap { patterns.add($0) }
                },
                ConfigurationRow("AdoptSuspension", .choice, \.suspension),
            ]
        }
        self.complaints += complaints
    }
}

/// Patterns of application ids, as fnmatch(3) understands them; those that begin with `!` take out what others let in,
/// in whatever order they stand.
struct Patterns: Equatable {
    private var included: [String] = []
    private var excluded: [String] = []

    /// Nothing matches.
    var isEmpty: Bool { included.isEmpty }

    /// Takes one more; answers what is wrong with it.
    mutating func add(_ word: String) -> String? {
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

    /// Whether an id is let in, and not taken out.
    func matches(_ id: String) -> Bool {
        func matches(_ pattern: String) -> Bool { fnmatch(pattern, id, 0) == 0 }
        return included.contains(where: matches) && !excluded.contains(where: matches)
    }
}

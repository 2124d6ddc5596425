public import Linux

/// The agent's own configuration: where it stands, and what it says.
public struct Configuration {
    public typealias Complaint = ConfigurationFile.Complaint

    /// Where the configuration is read from.
    public enum Source: Equatable, Sendable {
        /// Each file on top of those before it; any may be missing.
        case layers([String])
        /// One file alone; that it is missing is a complaint.
        case file(String)

        /// The administrator's, and the user's on top of it (XDG Base Directory Specification).
        public static var system: Source {
            func directory(_ name: String, _ below: String = "") -> String? {
                Environment[name].flatMap { $0.hasPrefix("/") ? $0 + below : nil }
            }
            let own = directory("XDG_CONFIG_HOME") ?? directory("HOME", "/.config")
            return .layers((["/etc", own].compactMap(\.self)).map { $0 + "/appstated/session.conf" })
        }
    }

    /// How those are registered that are adopted: `suspension` of org.appstate1.Manager.Register.
    public enum Suspension: String, CaseIterable, Sendable {
        case manual
        case automatic
        case never
    }

    /// In which state those are suspended whom the daemon may suspend: `suspend-when` of
    /// org.appstate1.Application.Configure.
    public enum SuspendWhen: String, CaseIterable, Sendable {
        case background
        case inactive
    }

    /// `Adopt=`
    public private(set) var adopt = Patterns()
    /// `AdoptSuspension=`: of those that no rule says more of.
    public private(set) var suspension = Suspension.manual
    /// `[Application PATTERN]`, in the order in which they were read.
    public private(set) var rules: [Rule] = []
    /// What could not be taken.
    public private(set) var complaints: [Complaint] = []

    private init() {}

    /// What one text says.
    ///
    /// - Parameter name: of the text, for complaints.
    public init(text: String, name: String) { take(ConfigurationFile(text, name: name)) }

    /// The user's own file, which may not be there; nil where the user has no directory for it.
    public static var ownFile: String? {
        guard case .layers(let paths) = Source.system, paths.count > 1 else { return nil }
        return paths.last
    }

    /// Reads what is there. Never fails: what cannot be taken becomes a complaint.
    public init(reading source: Source) {
        switch source {
        case .file(let path): take(ConfigurationFile(reading: path, mayBeMissing: false))
        case .layers(let paths):
            for path in paths { take(ConfigurationFile(reading: path, mayBeMissing: true)) }
        }
    }

    private mutating func take(_ file: ConfigurationFile) {
        let complaints = file.apply(to: &self, defaults: Configuration()) { section in
            if let pattern = Rule.pattern(ofSection: section) { return Rule.rows(pattern) }
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

    /// The rule for this pattern, whichever file it is in.
    subscript(rule pattern: String) -> Rule {
        get { rules.first { $0.pattern == pattern } ?? Rule(pattern) }
        set {
            if let index = rules.firstIndex(where: { $0.pattern == pattern }) {
                rules[index] = newValue
            } else {
                rules.append(newValue)
            }
        }
    }

    /// The rules that match an application, and by what.
    public func rules(for traits: Traits) -> [(rule: Rule, by: Traits.Kind)] {
        rules.compactMap { rule in rule.match(traits).map { (rule, $0) } }
    }
}

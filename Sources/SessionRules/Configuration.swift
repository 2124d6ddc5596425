public import Linux

/// The agent's own configuration: where it is stored, and its content.
public struct Configuration {
    public typealias Complaint = ConfigurationFile.Complaint

    /// Where the configuration is read from.
    public enum Source: Equatable, Sendable {
        /// Each file overrides those before it; any of them may be missing.
        case layers([String])
        /// Only one file; if it is missing, this is reported as a complaint.
        case file(String)

        /// The administrator's file, and the user's on top of it (XDG Base Directory Specification).
        public static var system: Source {
            .layers(["/etc/appstated/session.conf", ownFile()].compactMap(\.self))
        }
    }

    /// The user's own file, which may not exist; nil if the user has no directory for it.
    ///
    /// - Parameter environment: returns the value of a variable; nil: it is not set, or empty.
    public static func ownFile(environment: (String) -> String? = { Environment[$0] }) -> String? {
        func directory(_ name: String, _ below: String = "") -> String? {
            environment(name).flatMap { $0.hasPrefix("/") ? $0 + below : nil }
        }
        return (directory("XDG_CONFIG_HOME") ?? directory("HOME", "/.config")).map {
            $0 + "/appstated/session.conf"
        }
    }

    /// How adopted applications are registered: `suspension` of org.appstate1.Manager.Register.
    public enum Suspension: String, CaseIterable, Sendable {
        case manual
        case automatic
        case never
    }

    /// In which state the daemon suspends applications that it may suspend: `suspend-when` of
    /// org.appstate1.Application.Configure.
    public enum SuspendWhen: String, CaseIterable, Sendable {
        case background
        case inactive
        case sleep
    }

    /// `Adopt=`; without such a line, everything.
    public var adopt: Patterns { named ?? .everything }
    private var named: Patterns?
    /// `AdoptSuspension=`: for applications about which no rule says more.
    public private(set) var suspension = Suspension.manual
    /// `Usage=`: what applications use is recorded.
    public private(set) var usage = false
    /// `Notify=`: whether the user is told which applications the daemon has ended.
    public private(set) var notifies = true
    /// `[Application PATTERN]`, in the order in which they were read.
    public private(set) var rules: [Rule] = []
    /// The lines that were rejected, and why.
    public private(set) var complaints: [Complaint] = []

    private init() {}

    /// Reads one text.
    ///
    /// - Parameter name: the name of the text, for complaints.
    public init(text: String, name: String) { apply(ConfigurationFile(text, name: name)) }

    /// Reads the files that exist. Never fails: rejected lines become complaints.
    public init(reading source: Source) {
        switch source {
        case .file(let path): apply(ConfigurationFile(reading: path, mayBeMissing: false))
        case .layers(let paths):
            for path in paths { apply(ConfigurationFile(reading: path, mayBeMissing: true)) }
        }
    }

    /// Which file is being read.
    private var layer = 0

    private mutating func apply(_ file: ConfigurationFile) {
        defer { layer += 1 }
        revert(by: file)
        let layer = layer
        var defaults = Configuration()
        // systemd.syntax(7): an empty value clears a list.
        defaults.named = Patterns()
        let complaints = file.apply(to: &self, defaults: defaults) { section in
            if let pattern = Rule.pattern(ofSection: section), Patterns.closesBrackets(pattern) {
                return Rule.rows(pattern, layer)
            }
            guard section == "Session" else { return nil }
            return [
                ConfigurationRow("Adopt", list: \.named) { words, named in
                    var patterns = named ?? Patterns()
                    let refused = words.compactMap { patterns.add($0) }
                    // A line of which nothing is valid changes nothing.
                    if refused.count < words.count { named = patterns }
                    return refused
                },
                ConfigurationRow("AdoptSuspension", .choice, \.suspension),
                ConfigurationRow("Usage", .boolean, \.usage),
                ConfigurationRow("Notify", .boolean, \.notifies),
            ]
        }
        self.complaints += complaints
    }

    /// An empty value cancels the values of earlier files in a section of the same name.
    private mutating func revert(by file: ConfigurationFile) {
        for assignment in file.assignments where assignment.value.isEmpty {
            for rule in rules where rule.section == assignment.section && rule.layer < layer {
                let row = Rule.rows(rule.pattern, rule.layer).first { $0.key == assignment.key }
                row?.restore(in: &self, from: Configuration())
            }
        }
    }

    /// The rule for this pattern in one of the files.
    subscript(rule pattern: String, layer: Int) -> Rule {
        get { rules.first { $0.pattern == pattern && $0.layer == layer } ?? Rule(pattern, layer: layer) }
        set {
            if let index = rules.firstIndex(where: { $0.pattern == pattern && $0.layer == layer }) {
                rules[index] = newValue
            } else {
                rules.append(newValue)
            }
        }
    }

    /// The rules that match an application, and the trait by which each one matches.
    public func rules(for traits: Traits) -> [(rule: Rule, by: Traits.Kind)] {
        rules.compactMap { rule in rule.match(traits).map { (rule, $0) } }
    }
}

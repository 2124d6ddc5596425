import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux
import SessionRules

struct RuleCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rule",
        abstract: "Set how your applications are treated from now on.",
        discussion: """
            PATTERN matches an application's id, the class of its windows, its unit or its program, as in \
            fnmatch(3), ignoring case. The rule is written to your session.conf, and applies at once to running \
            applications. Without KEY=VALUE the rule is shown.

            \(Self.keys(width: Terminal.helpWidth - 1).joined(separator: "\n"))

            An empty value removes a key.
            """)

    /// The keys of a rule and what they mean, in lines of at most this width. ArgumentParser continues a longer line at
    /// its beginning, in the column of the keys.
    static func keys(width: Int) -> [String] {
        let isNarrow = width < 60
        let column = isNarrow ? 6 : 28
        return descriptions.flatMap { key, description in
            let text = description.wrapped(to: width - column)
                .map { String(repeating: " ", count: column) + $0 }
            let name = "  " + key
            guard !isNarrow, name.count + 2 <= column, let first = text.first else { return [name] + text }
            return [name + first.dropFirst(name.count)] + text.dropFirst()
        }
    }

    private static let descriptions: [(String, String)] = [
        ("Suspension=automatic|manual|never", "whether policy suspends it"),
        ("BackgroundGraceSec=SPAN", "time in the background before it is suspended"),
        (
            "KeepWhile=WORD…",
            "what keeps it from being suspended: \(Rule.knownReasons.joined(separator: ", ")); none"
        ),
        ("Reclaimable=yes|no", "may be ended when memory is short"),
        ("DrainEverySec=SPAN", "time between short runs while it stays suspended"),
        ("DrainForSec=SPAN", "how long such a run lasts"),
        (
            "SuspendWhen=background|inactive|sleep",
            "inactive: even while it is visible, unless it has the focus; sleep: only while the machine sleeps"
        ),
        ("BackgroundCPUQuota=N%", "share of one processor in the background, instead of suspension"),
        ("UnsavedMark=yes|no", "the mark of unsaved changes in a window's title counts"),
        ("RelaunchReclaimed=yes|no", "started again in the background once memory is no longer short"),
        ("ExecSuspend=COMMAND", "run before it is suspended; suspension waits until it succeeds"),
        ("ExecResume=COMMAND", "run when it runs again"),
        ("ActivityTypes=TYPE…", "the user activities that it continues, besides those of its desktop entry"),
        ("IgnoreCallers=PROGRAM…", "the programs whose calls do not resume it, or none"),
        ("OnBattery=yes|no", "the rule applies only on battery, or only on mains"),
        ("Title=PATTERN", "the rule applies only while one of its windows has such a title"),
    ]

    @Flag(help: "Remove the rule.") var delete = false
    @Argument(help: "The applications.", completion: .ownApplicationIDs) var pattern: String
    @Argument(help: ArgumentHelp("What the rule says.", valueName: "key=value")) var assignments: [String] =
        []

    func run() throws {
        let rule = Rule(pattern.trimmed)
        guard !rule.pattern.isEmpty, !rule.pattern.contains(where: \.isNewline) else {
            throw ValidationError("A pattern must not be empty, and must not have line breaks.")
        }
        guard let path = Configuration.ownFile() else {
            throw Failure("there is no place for your configuration: neither HOME nor XDG_CONFIG_HOME is set")
        }
        guard delete || !assignments.isEmpty else { return try show(rule) }
        guard delete || rule.closesBrackets else {
            throw ValidationError("\"\(rule.pattern)\": a bracket is not closed.")
        }
        guard !delete || assignments.isEmpty else {
            throw ValidationError("--delete removes the whole rule; KEY= removes one key.")
        }
        let pairs = try assignments.map(Self.pair)
        for (key, value) in pairs {
            guard Rule.keys.contains(key) else {
                throw ValidationError("\(key)=: no such key in [\(rule.section)]\(Self.hint(at: key))")
            }
            let text = "[\(rule.section)]\n\(key)=\(value)\n"
            if let complaint = Configuration(text: text, name: "").complaints.first {
                throw ValidationError("\(key)=: \(complaint.problem)")
            }
        }
        var file = RuleFile(try UserFile.text(of: path))
        if delete, !file.remove(rule) { throw Failure("there is no rule [\(rule.section)] in \(path)") }
        file.set(pairs, in: rule)
        guard file.text.utf8.count <= TextFile.limit else {
            throw Failure("\(path) would be longer than \(TextFile.limit >> 20) MiB")
        }
        try UserFile.write(file.text, to: path)
        for changed in Configuration(text: file.text, name: path).rules where changed.matchesAs(rule) {
            changed.warnOfReasons()
        }
        // The user's agents notice the change of the file.
        if let reason = try SessionAgent.absence(file: path, bus: nil) {
            let what = delete ? "removal" : "rule"
            Terminal.warn("appstatectl: the \(what) is not applied yet: \(reason)")
        }
    }

    private static func pair(_ text: String) throws -> (key: String, value: String) {
        guard let equals = text.firstIndex(of: "="), equals > text.startIndex,
            !text.contains(where: \.isNewline)
        else { throw ValidationError("\"\(text)\" is not KEY=VALUE.") }
        let value = String(text[text.index(after: equals)...]).trimmed
        // A backslash would continue the value in the next line.
        guard value.last != "\\" else { throw ValidationError("\"\(text)\" ends with a backslash.") }
        return (String(text[..<equals]).trimmed, value)
    }

    /// The key that was meant, if only the case is wrong.
    private static func hint(at key: String) -> String {
        let meant = Rule.keys.first { $0 != key && strcasecmp($0, key) == 0 }
        return meant.map { "; did you mean \($0)?" } ?? ""
    }

    private func show(_ rule: Rule) throws {
        let configuration = try Configuration.readable()
        let complaints = configuration.complaints.filter { complaint in
            // Line 0: the whole file cannot be read.
            let section = ConfigurationFile(reading: complaint.file, mayBeMissing: true).sections
                .last { $0.line <= complaint.line }
            return complaint.line == 0 || section.map { strcasecmp($0.name, rule.section) == 0 } ?? false
        }
        for complaint in complaints { Terminal.warn("\(complaint)") }
        let known = Rule.combined(configuration.rules.filter(rule.matchesAs))
        for line in known?.assignments ?? [] { Terminal.emit(Line(line)) }
        if known?.assignments.isEmpty == false { return }
        throw Failure(
            known == nil && complaints.isEmpty
                ? "there is no rule [\(rule.section)]"
                : "[\(rule.section)] says nothing" + (complaints.isEmpty ? "" : " that is valid"))
    }
}

struct Rules: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show your rules, and the running applications that they apply to.")

    @OptionGroup var bus: BusOptions

    func run() throws {
        let configuration = try Configuration.readable()
        for complaint in configuration.complaints { Terminal.warn("\(complaint)") }
        for rule in configuration.rules { rule.warnOfReasons() }
        guard !configuration.rules.isEmpty else {
            Terminal.warn("There are no rules; appstatectl help rule explains how to make one.")
            return
        }
        let client = try bus.connect()
        var uses: [String: [String]] = [:]
        for row in try client.applications() where row.uid == getuid() {
            // The application may have ended meanwhile.
            guard let facts = try? client.explanation(of: row.path),
                case .string(let names)? = facts.first(where: { $0.key == "rule" })?.value
            else { continue }
            let patterns = names.components(by: Rule.separator)
            let traits = Traits(of: Int32(row.pid), id: row.id)
            // A long list of patterns was cut off.
            let isWhole = names.utf8.count < Rule.mostNameBytes
            for pattern in Set(configuration.rules.map(\.pattern)) {
                let kind = Rule(pattern).match(traits)
                guard patterns.contains(pattern) || !isWhole && kind != nil else { continue }
                let how = kind ?? .windowClass
                uses[pattern, default: []].append("\(row.id) (\(row.number)), by its \(how.rawValue)")
            }
        }
        var table = Table(["RULE", "SAYS", "ABOUT"], givingWay: [(2, 12), (1, 12), (0, 8)])
        for rule in configuration.rules {
            let says = rule.assignments.joined(separator: " ")
            let about = uses[rule.pattern] ?? ["no running application"]
            for (index, use) in about.enumerated() {
                table.add([Line(index == 0 ? rule.pattern : ""), Line(index == 0 ? says : ""), Line(use)])
            }
        }
        table.emit()
        if let reason = try SessionAgent.absence(file: Configuration.ownFile(), bus: bus.address) {
            Terminal.warn("appstatectl: the rules are not applied: \(reason)")
        }
    }
}

extension Configuration {
    /// The rules in the files; a failure if one of them cannot be read. A link to /dev/null masks a file.
    fileprivate static func readable() throws -> Configuration {
        if case .layers(let paths) = Source.system {
            for path in paths where !TextFile.isNull(path) { _ = try UserFile.bytes(of: path) }
        }
        return Configuration(reading: .system)
    }
}

extension Rule {
    /// What the rules say that an application of the caller has now.
    ///
    /// - Parameter names: `rule` of `Explain`.
    static func settings(ofRules names: String) -> [String] {
        let patterns = names.components(by: separator)
        let rules = Configuration(reading: .system).rules.filter { patterns.contains($0.pattern) }
        return combined(rules)?.assignments ?? []
    }

    /// The words of `KeepWhile=` that make a difference. The session agent adds `command` wherever it is reported.
    fileprivate static let knownReasons = ObjectionReason.allCases.filter { $0 != .command }.map(\.rawValue)

    /// Other reporters may have words of their own, so an unknown word is accepted.
    fileprivate func warnOfReasons() {
        for word in keepWhile ?? []
        where !Self.knownReasons.contains(word) && word != ObjectionReason.command.rawValue {
            Terminal.warn(
                "appstatectl: [\(section)] KeepWhile=: nothing here reports \"\(word)\"; known are "
                    + Self.knownReasons.joined(separator: ", "))
        }
    }
}

extension String {
    fileprivate func components(by separator: String) -> [String] {
        var rest = Substring(self)
        var found: [String] = []
        while let range = rest.firstRange(of: separator) {
            found.append(String(rest[..<range.lowerBound]))
            rest = rest[range.upperBound...]
        }
        return found + [String(rest)]
    }
}

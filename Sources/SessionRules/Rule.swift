import Glibc
public import Linux

/// A user's settings for some of their applications: `[Application PATTERN]`.
public struct Rule: Equatable, Sendable {
    /// As in fnmatch(3), ignoring case.
    public let pattern: String
    /// The file that contains it: a greater number comes later, and so takes precedence.
    let layer: Int
    /// `Suspension=`
    public var suspension: Configuration.Suspension?
    /// `Reclaimable=`
    public var reclaimable: Bool?
    /// `BackgroundGraceSec=`, in microseconds; `.max`: infinite.
    public var backgroundGrace: UInt64?
    /// `KeepWhile=`: the reasons that keep it from being suspended; nil: all reasons.
    public var keepWhile: [String]?
    /// `DrainEverySec=`, in microseconds; `.max`: never.
    public var drainEvery: UInt64?
    /// `DrainForSec=`, in microseconds.
    public var drainFor: UInt64?
    /// `SuspendWhen=`
    public var suspendWhen: Configuration.SuspendWhen?
    /// `BackgroundCPUQuota=`, in percent of one processor.
    public var backgroundCPUQuota: UInt32?
    /// `UnsavedMark=`: whether the mark of unsaved changes in a title counts.
    public var unsavedMark: Bool?
    /// `RelaunchReclaimed=`: whether it is started again in the background after it was ended because memory was short,
    /// once memory no longer is.
    public var relaunchReclaimed: Bool?
    /// `ExecSuspend=`: a command line for sh(1).
    public var execSuspend: String?
    /// `ExecResume=`: the same.
    public var execResume: String?
    /// `ActivityTypes=`: the user activities that it continues, besides those that its desktop entry names.
    public var activityTypes: [String]?
    /// `IgnoreCallers=`: the programs, as in fnmatch(3), whose calls do not resume it.
    public var ignoreCallers: [String]?
    /// `OnBattery=`: whether the rule applies only on battery power or only on mains power; nil: always.
    public var onBattery: Bool?
    /// `Title=`: the rule applies only while a window of the application has such a title, as in fnmatch(3), ignoring case.
    public var title: String?

    /// Creates a rule without settings.
    public init(_ pattern: String) { self.init(pattern, layer: 0) }

    init(_ pattern: String, layer: Int) {
        self.pattern = pattern
        self.layer = layer
    }

    /// Separates the patterns of several rules about one application.
    public static let separator = ", "
    /// The longest text that the daemon accepts as the name of a rule. It may be truncated up to three bytes
    /// earlier, so that no character is split.
    public static let mostNameBytes = 252
    private static let prefix = "Application "
    private static let caseless: Int32 = 1 << 4

    /// The name of its section, without the brackets.
    public var section: String { Self.prefix + pattern }

    /// The pattern of a section; nil if the section is not about applications.
    static func pattern(ofSection name: String) -> String? {
        guard name.hasPrefix(prefix) else { return nil }
        let pattern = String(name.dropFirst(prefix.count)).trimmed
        return pattern.isEmpty ? nil : pattern
    }

    /// Whether both apply to the same applications, because their patterns differ at most in case.
    public func matchesAs(_ other: Rule) -> Bool { strcasecmp(pattern, other.pattern) == 0 }

    /// Whether each bracket in the pattern is closed. fnmatch(3) treats an unclosed bracket as a plain
    /// character.
    public var closesBrackets: Bool { Patterns.closesBrackets(pattern) }

    /// The keys that its section may contain.
    public static var keys: [String] { rows("", 0).map(\.key) }

    /// The keys and values that its section may contain.
    static func rows(_ pattern: String, _ layer: Int) -> [ConfigurationRow<Configuration>] {
        [
            ConfigurationRow("Suspension", .choice, \.[rule: pattern, layer].suspension),
            ConfigurationRow("Reclaimable", .boolean, \.[rule: pattern, layer].reclaimable),
            ConfigurationRow("BackgroundGraceSec", .boundlessSpan, \.[rule: pattern, layer].backgroundGrace),
            ConfigurationRow("KeepWhile", .reasons, \.[rule: pattern, layer].keepWhile),
            ConfigurationRow("DrainEverySec", .boundlessSpan, \.[rule: pattern, layer].drainEvery),
            ConfigurationRow("DrainForSec", .finiteSpan, \.[rule: pattern, layer].drainFor),
            ConfigurationRow("SuspendWhen", .choice, \.[rule: pattern, layer].suspendWhen),
            ConfigurationRow("BackgroundCPUQuota", .percentage, \.[rule: pattern, layer].backgroundCPUQuota),
            ConfigurationRow("UnsavedMark", .boolean, \.[rule: pattern, layer].unsavedMark),
            ConfigurationRow("RelaunchReclaimed", .boolean, \.[rule: pattern, layer].relaunchReclaimed),
            ConfigurationRow("ExecSuspend", .commandLine, \.[rule: pattern, layer].execSuspend),
            ConfigurationRow("ExecResume", .commandLine, \.[rule: pattern, layer].execResume),
            ConfigurationRow("ActivityTypes", .activityTypes, \.[rule: pattern, layer].activityTypes),
            ConfigurationRow("IgnoreCallers", .programs, \.[rule: pattern, layer].ignoreCallers),
            ConfigurationRow("OnBattery", .boolean, \.[rule: pattern, layer].onBattery),
            ConfigurationRow("Title", .title, \.[rule: pattern, layer].title),
        ]
    }

    /// Whether calls by this program do not resume it.
    public func ignores(caller program: String) -> Bool {
        ignoreCallers?.contains { fnmatch($0, program, 0) == 0 } ?? false
    }

    /// Whether it applies now.
    ///
    /// - Parameter titles: the patterns of titles that match one of the application's windows.
    public func counts(onBattery: Bool, titles: Set<String>) -> Bool {
        (self.onBattery.map { $0 == onBattery } ?? true) && (title.map(titles.contains) ?? true)
    }

    /// Whether a window's title matches `Title=`.
    public func matches(title text: String) -> Bool {
        title.map { fnmatch($0, text, Self.caseless) == 0 } ?? false
    }

    /// The trait by which it matches an application; nil: it does not match.
    public func match(_ traits: Traits) -> Traits.Kind? {
        Traits.Kind.allCases.first { kind in
            traits[kind].contains { fnmatch(pattern, $0, Self.caseless) == 0 }
        }
    }

    /// Its settings, as a configuration writes them.
    public var assignments: [String] {
        var lines: [String] = []
        if let suspension { lines.append("Suspension=\(suspension.rawValue)") }
        if let reclaimable { lines.append("Reclaimable=\(reclaimable ? "yes" : "no")") }
        func add(_ key: String, _ span: UInt64?) {
            if let span { lines.append("\(key)=" + (span == .max ? "infinity" : TimeSpan.text(of: span))) }
        }
        add("BackgroundGraceSec", backgroundGrace)
        add("DrainEverySec", drainEvery)
        add("DrainForSec", drainFor)
        if let suspendWhen { lines.append("SuspendWhen=\(suspendWhen.rawValue)") }
        if let backgroundCPUQuota { lines.append("BackgroundCPUQuota=\(backgroundCPUQuota)%") }
        if let unsavedMark { lines.append("UnsavedMark=\(unsavedMark ? "yes" : "no")") }
        if let relaunchReclaimed { lines.append("RelaunchReclaimed=\(relaunchReclaimed ? "yes" : "no")") }
        if let execSuspend { lines.append("ExecSuspend=\(execSuspend)") }
        if let execResume { lines.append("ExecResume=\(execResume)") }
        if let activityTypes { lines.append("ActivityTypes=\(activityTypes.joined(separator: " "))") }
        if let ignoreCallers {
            lines.append(
                "IgnoreCallers=" + (ignoreCallers.isEmpty ? "none" : ignoreCallers.joined(separator: " ")))
        }
        if let onBattery { lines.append("OnBattery=\(onBattery ? "yes" : "no")") }
        if let title { lines.append("Title=\(title)") }
        if let keepWhile {
            lines.append("KeepWhile=" + (keepWhile.isEmpty ? "none" : keepWhile.joined(separator: " ")))
        }
        return lines
    }

    /// Several rules combined: for each key the last value counts.
    public static func combined(_ rules: [Rule]) -> Rule? {
        guard var all = rules.first else { return nil }
        for rule in rules.dropFirst() {
            all.suspension = rule.suspension ?? all.suspension
            all.reclaimable = rule.reclaimable ?? all.reclaimable
            all.backgroundGrace = rule.backgroundGrace ?? all.backgroundGrace
            all.keepWhile = rule.keepWhile ?? all.keepWhile
            all.drainEvery = rule.drainEvery ?? all.drainEvery
            all.drainFor = rule.drainFor ?? all.drainFor
            all.onBattery = rule.onBattery ?? all.onBattery
            all.title = rule.title ?? all.title
            all.suspendWhen = rule.suspendWhen ?? all.suspendWhen
            all.activityTypes = rule.activityTypes ?? all.activityTypes
            all.ignoreCallers = rule.ignoreCallers ?? all.ignoreCallers
            all.unsavedMark = rule.unsavedMark ?? all.unsavedMark
            all.relaunchReclaimed = rule.relaunchReclaimed ?? all.relaunchReclaimed
            all.execSuspend = rule.execSuspend ?? all.execSuspend
            all.execResume = rule.execResume ?? all.execResume
            all.backgroundCPUQuota = rule.backgroundCPUQuota ?? all.backgroundCPUQuota
        }
        return all
    }
}

/// The traits by which an application can be recognized.
public struct Traits: Equatable, Sendable {
    /// In the order in which they are compared.
    public enum Kind: String, CaseIterable, Sendable {
        /// Its application id.
        case id
        /// The class, or the application id, of its windows.
        case windowClass = "window class"
        /// Its own unit, and the application that the unit is named after.
        case unit
        /// The file name of its program.
        case program
    }

    private var values: [Kind: Set<String>] = [:]

    /// Creates traits of an application about which nothing is known.
    public init() {}

    /// The traits that a process reveals about its application, except for the windows.
    ///
    /// - Parameters:
    ///   - pid: its main process.
    ///   - id: the id that it is, or would be, registered with.
    public init(of pid: Int32, id: String, proc: Proc = Proc()) {
        self[.id] = [id]
        let unit = (try? proc.unifiedCgroup(of: pid)).flatMap { ApplicationUnit(inPath: $0) }
        if let unit, unit.isNamed(after: pid, proc: proc) {
            let name = unit.path.split(separator: "/").last.map(String.init)
            self[.unit] = Set([name, unit.application].compactMap(\.self))
        }
        if let program = try? proc.program(of: pid) { self[.program] = [program] }
    }

    /// The known values of this kind.
    public subscript(_ kind: Kind) -> Set<String> {
        get { values[kind] ?? [] }
        set { values[kind] = newValue.subtracting([""]) }
    }
}

extension ConfigurationValue where Value == UInt64 {
    /// A span of time; `.max` is `infinity`.
    fileprivate static var boundlessSpan: Self {
        Self("is not a time span (5, 500ms, 1min 30s, infinity)") { text in
            switch TimeSpan.parse(text) {
            case .microseconds(let span)?: span
            case .infinity?: .max
            case nil: nil
            }
        }
    }
}

extension ConfigurationValue where Value == UInt32 {
    /// Percent of one processor, as `CPUQuota=` of systemd.resource-control(5) takes it.
    fileprivate static var percentage: Self {
        Self("is not a percentage of a processor, such as 20%") { text in
            guard text.hasSuffix("%"), let percent = UInt32(text.dropLast()) else { return nil }
            return CgroupKnob.percentages.contains(percent) ? percent : nil
        }
    }
}

extension ConfigurationValue where Value == String {
    fileprivate static var commandLine: Self { Self("is not a command") { $0.isEmpty ? nil : $0 } }
    fileprivate static var title: Self {
        Self("is not a pattern of titles: a bracket is not closed") {
            Patterns.closesBrackets($0) && !$0.isEmpty ? $0 : nil
        }
    }
}

extension ConfigurationValue where Value == [String] {
    /// Types of user activities, such as org.example.Notes.editing.
    fileprivate static var activityTypes: Self {
        Self("is not a list of types such as org.example.Notes.editing") { text in
            let words = text.split(whereSeparator: \.isWhitespace).map(String.init)
            return words.count <= 64 && words.allSatisfy { $0.utf8.count <= 255 } ? words : nil
        }
    }

    /// Names of programs, or patterns of these; `none`: no program.
    fileprivate static var programs: Self {
        words("is neither none alone nor a list of programs such as polybar*, with each bracket closed") {
            $0.utf8.count <= 255 && !$0.contains("/") && Patterns.closesBrackets($0)
        }
    }

    /// Words of a-z, 0-9 and -; `none`: no reason counts.
    fileprivate static var reasons: Self {
        words("is neither none alone nor a list of words of a-z, 0-9 and -") { word in
            word.utf8.count <= 64
                && word.utf8.allSatisfy { "abcdefghijklmnopqrstuvwxyz0123456789-".utf8.contains($0) }
        }
    }

    private static func words(_ wanted: String, isValid: @escaping (String) -> Bool) -> Self {
        Self(wanted) { text in
            let words = text.split(whereSeparator: \.isWhitespace).map(String.init)
            if words == ["none"] { return [] }
            return words.count <= 64 && words.allSatisfy { $0 != "none" && isValid($0) } ? words : nil
        }
    }
}

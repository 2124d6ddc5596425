import AppStateContract
public import LifeCycle
public import Linux

/// The daemon's configuration: where it stands, and what it says.
public struct Configuration {
    /// A line that was not taken; the default stands.
    public typealias Complaint = ConfigurationFile.Complaint

    /// Where the configuration is read from.
    public enum Source: Equatable, Sendable {
        /// `appstated.conf` in the directory, then `appstated.conf.d/*.conf` by name.
        case directory(String)
        /// One file alone; that it is missing is a complaint.
        case file(String)

        /// Where an installed daemon looks.
        public static let system = Source.directory("/etc/appstated")
    }

    public internal(set) var settings = Settings()
    /// `[State …]`
    private(set) var resources = ResourceTable()
    public private(set) var complaints: [Complaint] = []

    public init() {}

    /// Reads what is there. Never fails: what cannot be taken becomes a complaint.
    public init(reading source: Source) {
        switch source {
        case .file(let path):
            read(path, mayBeMissing: false)
        case .directory(let directory):
            read(directory + "/appstated.conf", mayBeMissing: true)
            for name in TextFile.names(inDirectory: directory + "/appstated.conf.d")
            where name.hasSuffix(".conf") {
                read("\(directory)/appstated.conf.d/\(name)", mayBeMissing: true)
            }
        }
    }

    private mutating func read(_ path: String, mayBeMissing: Bool) {
        do {
            take(try TextFile.read(path), named: path)
        } catch  where error.isNoSuchFile && mayBeMissing {
            return
        } catch {
            complaints.append(Complaint(file: path, line: 0, key: "", problem: "\(error)"))
        }
    }

    /// Takes the text of one file on top of what was taken before.
    mutating func take(_ text: String, named name: String) {
        let file = ConfigurationFile(text, name: name)
        complaints += file.complaints
        for (section, line) in file.sections where !Self.isKnown(section) {
            complaints.append(
                Complaint(file: name, line: line, key: "", problem: "[\(section)] is no section"))
        }
        for assignment in file.assignments where Self.isKnown(assignment.section) {
            if let problem = apply(assignment) {
                complaints.append(
                    Complaint(file: name, line: assignment.line, key: assignment.key, problem: problem))
            }
        }
    }

    private static func isKnown(_ section: String) -> Bool {
        ["Daemon", "LifeCycle", "Limits", "Pressure"].contains(section)
            || ResourceTable.state(of: section) != nil
            || applicationID(of: section) != nil
    }

    private static func applicationID(of section: String) -> ApplicationID? {
        guard section.hasPrefix("Application ") else { return nil }
        return ApplicationID(String(section.dropFirst("Application ".count)).trimmed)
    }

    /// Takes one line; answers what is wrong with it. An empty value puts the default back, but in the
    /// sections of states.
    private mutating func apply(_ line: ConfigurationFile.Assignment) -> String? {
        let (key, value) = (line.key, line.value)
        switch line.section {
        case "Daemon":
            guard key == "Mode" else { return "no such key in [Daemon]" }
            return choose(value, \.mode)
        case "LifeCycle":
            switch key {
            case "BackgroundGraceSec": return span(value, \.backgroundGrace)
            case "BackgroundTaskMaxSec": return span(value, \.backgroundTaskMax)
            case "BackgroundTaskWarnSec": return finiteSpan(value, \.backgroundTaskWarn)
            case "DrainEverySec": return span(value, \.drainEvery)
            case "DrainForSec": return finiteSpan(value, \.drainFor)
            case "TerminateGraceSec": return span(value, \.terminateGrace)
            case "LaunchTimeoutSec": return span(value, \.launchTimeout)
            default: return "no such key in [LifeCycle]"
            }
        case "Limits":
            switch key {
            case "ApplicationsPerUser": return count(value, \.limits.applicationsPerUser)
            case "SubscribersPerUser": return count(value, \.limits.subscribersPerUser)
            case "WindowsPerApplication": return count(value, \.limits.windowsPerApplication)
            case "BackgroundTasksPerApplication": return count(value, \.limits.backgroundTasksPerApplication)
            case "StringBytes": return count(value, \.limits.stringBytes)
            default: return "no such key in [Limits]"
            }
        case "Pressure":
            return applyPressure(key, value)
        case let section where ResourceTable.state(of: section) != nil:
            return resources.apply(key, value, in: section)
        default:
            guard let id = Self.applicationID(of: line.section) else { return nil }
            return apply(key, value, to: id.rawValue)
        }
    }

    private mutating func apply(_ key: String, _ value: String, to id: String) -> String? {
        var override = settings.applications[id] ?? Settings.Override()
        switch key {
        case "Suspension":
            guard value.isEmpty || SuspensionPolicy(rawValue: value) != nil else {
                return Self.wanted(SuspensionPolicy.allCases.map(\.rawValue), value)
            }
            override.suspension = SuspensionPolicy(rawValue: value)
        case "Reclaimable":
            guard value.isEmpty || Self.boolean(value) != nil else { return "\"\(value)\" is no boolean" }
            override.reclaimable = Self.boolean(value)
        case "BackgroundModes":
            // systemd.syntax(7): a list may be given in several lines; an empty one starts it anew.
            let modes = value.split(whereSeparator: \.isWhitespace).map(String.init)
            override.backgroundModes = modes.isEmpty ? [] : override.backgroundModes.union(modes)
        default:
            return "no such key in [Application \(id)]"
        }
        settings.applications[id] = override
        return nil
    }

    // MARK: Kinds of values

    private mutating func span(_ value: String, _ path: WritableKeyPath<Settings, Microseconds?>) -> String? {
        if value.isEmpty {
            settings[keyPath: path] = Settings()[keyPath: path]
            return nil
        }
        switch TimeSpan.parse(value) {
        case .microseconds(let span)?: settings[keyPath: path] = span
        case .infinity?: settings[keyPath: path] = nil
        case nil: return Self.noSpan(value)
        }
        return nil
    }

    mutating func finiteSpan(_ value: String, _ path: WritableKeyPath<Settings, Microseconds>)
        -> String?
    {
        if value.isEmpty {
            settings[keyPath: path] = Settings()[keyPath: path]
            return nil
        }
        guard let parsed = TimeSpan.parse(value) else { return Self.noSpan(value) }
        guard case .microseconds(let span) = parsed else { return "it cannot be infinity" }
        settings[keyPath: path] = span
        return nil
    }

    mutating func count(_ value: String, _ path: WritableKeyPath<Settings, Int>) -> String? {
        if value.isEmpty {
            settings[keyPath: path] = Settings()[keyPath: path]
            return nil
        }
        guard let number = Int(value), (1...Self.greatestLimit).contains(number) else {
            return "\"\(value)\" is no number from 1 to \(Self.greatestLimit)"
        }
        settings[keyPath: path] = number
        return nil
    }

    private mutating func choose<Choice: RawRepresentable<String> & CaseIterable>(
        _ value: String, _ path: WritableKeyPath<Settings, Choice>
    ) -> String? {
        if value.isEmpty {
            settings[keyPath: path] = Settings()[keyPath: path]
            return nil
        }
        guard let choice = Choice(rawValue: value) else {
            return Self.wanted(Choice.allCases.map(\.rawValue), value)
        }
        settings[keyPath: path] = choice
        return nil
    }

    /// Everything below it is bounded; more would be no limit.
    private static let greatestLimit = 1_000_000

    static func boolean(_ value: String) -> Bool? {
        switch value.lowercased() {
        case "1", "yes", "y", "true", "t", "on": true
        case "0", "no", "n", "false", "f", "off": false
        default: nil
        }
    }

    private static func noSpan(_ value: String) -> String {
        "\"\(value)\" is no time span (5, 500ms, 1min 30s, infinity)"
    }

    private static func wanted(_ choices: [String], _ value: String) -> String {
        "\"\(value)\" is none of " + choices.joined(separator: ", ")
    }
}

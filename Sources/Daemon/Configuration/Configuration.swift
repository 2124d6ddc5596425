import AppStateContract
public import LifeCycle
public import Linux

/// The daemon's configuration: its location and its content.
public struct Configuration {
    /// A line that was rejected. It is ignored: a valid line before it applies, or else the default.
    public typealias Complaint = ConfigurationFile.Complaint

    /// Where the configuration is read from.
    public enum Source: Equatable, Sendable {
        /// `appstated.conf` in the directory, then `appstated.conf.d/*.conf` by name.
        case directory(String)
        /// Only one file. If it is missing, this is reported as a complaint.
        case file(String)

        /// The location for an installed daemon.
        public static let system = Source.directory("/etc/appstated")
    }

    public internal(set) var settings = Settings()
    /// `[State …]`
    private(set) var resources = ResourceTable()
    public private(set) var complaints: [Complaint] = []
    /// Whether a `Mode=` in the last file that has one was rejected. Then the daemon observes: of the two modes, this one takes nothing away.
    public private(set) var isModeUnknown = false

    public init() {}

    /// Reads the existing files. Never fails: rejected lines become complaints.
    public init(reading source: Source) {
        switch source {
        case .file(let path):
            apply(ConfigurationFile(reading: path, mayBeMissing: false))
        case .directory(let directory):
            apply(ConfigurationFile(reading: directory + "/appstated.conf", mayBeMissing: true))
            for name in TextFile.names(inDirectory: directory + "/appstated.conf.d")
            where name.hasSuffix(".conf") {
                apply(ConfigurationFile(reading: "\(directory)/appstated.conf.d/\(name)", mayBeMissing: true))
            }
        }
    }

    /// Applies one file; it overrides the earlier files.
    mutating func apply(_ file: ConfigurationFile) {
        var defaults = Configuration()
        // In the sections of states an empty value leaves the application's own value alone.
        defaults.resources = .nothing
        let complaints = file.apply(to: &self, defaults: defaults, rows: Self.rows(of:))
        self.complaints += complaints
        let modes = file.assignments.filter { $0.key == Self.modeKey }
        if complaints.contains(where: { $0.key == Self.modeKey })
            || modes.contains(where: { $0.section != Self.modeSection })
        {
            settings.mode = .observe
            isModeUnknown = true
        } else if !modes.isEmpty {
            isModeUnknown = false
        }
    }

    private static let modeSection = "Daemon"
    private static let modeKey = "Mode"

    private subscript(application id: String) -> Settings.Override {
        get { settings.applications[id] ?? Settings.Override() }
        set { settings.applications[id] = newValue }
    }

    // MARK: Sections

    private typealias Row = ConfigurationRow<Configuration>

    /// The keys of a section; nil: there is no such section.
    private static func rows(of section: String) -> [Row]? {
        switch section {
        case modeSection: [Row(modeKey, .choice, \.settings.mode)]
        case "LifeCycle":
            [
                Row("BackgroundGraceSec", .span, \.settings.backgroundGrace),
                Row("BackgroundTaskMaxSec", .span, \.settings.backgroundTaskMax),
                Row("BackgroundTaskWarnSec", .finiteSpan, \.settings.backgroundTaskWarn),
                Row("DrainEverySec", .span, \.settings.drainEvery),
                Row("DrainForSec", .finiteSpan, \.settings.drainFor),
                Row("NetworkRate", .rate, \.settings.networkRate),
                Row("DiskRate", .rate, \.settings.diskRate),
                Row("TerminateGraceSec", .span, \.settings.terminateGrace),
                Row("LaunchTimeoutSec", .span, \.settings.launchTimeout),
                Row("UnresponsiveSec", .span, \.settings.unresponsive),
                Row("LaunchTimeoutAction", .choice, \.settings.launchTimeoutAction),
            ]
        case "Limits":
            [
                Row("ApplicationsPerUser", .count, \.settings.limits.applicationsPerUser),
                Row("SubscribersPerUser", .count, \.settings.limits.subscribersPerUser),
                Row("WindowsPerUser", .count, \.settings.limits.windowsPerUser),
                Row("BackgroundTasksPerUser", .count, \.settings.limits.backgroundTasksPerUser),
                Row("StringBytes", .count, \.settings.limits.stringBytes),
                Row("SavedStatePerUser", .bytes, \.settings.limits.savedStatePerUser),
            ]
        case "Pressure":
            [
                Row("Source", list: \.settings.pressure.sources, add: addSources),
                Row("Warning", .trigger, \.settings.pressure.warning),
                Row("Critical", .trigger, \.settings.pressure.critical),
                Row("CriticalAvailable", .amount, \.settings.pressure.criticalAvailable),
                Row("ThrashingLimit", .limit, \.settings.pressure.thrashingLimit),
                Row("KillWaitSec", .finiteSpan, \.settings.pressure.killWait),
                Row("TerminateGraceSec", .finiteSpan, \.settings.pressure.terminateGrace),
                Row("KillsPerEvent", .count, \.settings.pressure.killsPerEvent),
                Row("LowMemoryMonitor", .boolean, \.settings.pressure.servesLowMemoryMonitor),
            ]
        default: rows(ofState: section) ?? rows(ofApplication: section)
        }
    }

    private static func rows(ofState section: String) -> [Row]? {
        let path: WritableKeyPath<Configuration, ResourceRow>
        switch name(in: section, after: "State ").flatMap(LifeCycleState.init(rawValue:)) {
        case .active?: path = \.resources.active
        case .inactive?: path = \.resources.inactive
        case .background?: path = \.resources.background
        case .suspended?: path = \.resources.suspended
        case .notRunning?, nil: return nil
        }
        return [
            Row("CPUWeight", .number(CgroupKnob.weights), path.appending(path: \.cpuWeight)),
            Row("IOWeight", .number(CgroupKnob.weights), path.appending(path: \.ioWeight)),
            Row("MemoryLow", .protection, path.appending(path: \.memoryLow)),
            Row("OOMScoreAdjust", .number(OOMScoreAdjustment.range), path.appending(path: \.oomScoreAdjust)),
        ]
    }

    private static func rows(ofApplication section: String) -> [Row]? {
        guard let id = name(in: section, after: "Application ").flatMap(ApplicationID.init)?.rawValue else {
            return nil
        }
        return [
            Row("Suspension", .choice, \.[application: id].suspension),
            Row("Reclaimable", .boolean, \.[application: id].reclaimable),
            Row("UnresponsiveAction", .choice, \.[application: id].unresponsiveAction),
            Row("BackgroundModes", list: \.[application: id].backgroundModes) { words, modes in
                modes.formUnion(words)
                return []
            },
        ]
    }

    /// The name in `[Word name]`.
    private static func name(in section: String, after word: String) -> String? {
        section.hasPrefix(word) ? String(section.dropFirst(word.count)).trimmed : nil
    }

    private static func addSources(_ paths: [String], _ sources: inout [String]) -> [String] {
        let wrong = paths.filter { !$0.hasPrefix("/") }
        if wrong.isEmpty { sources += paths }
        return wrong.prefix(1).map { "\"\($0.excerpt)\" is not an absolute path" }
    }
}

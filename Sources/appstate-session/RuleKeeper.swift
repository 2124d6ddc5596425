import AppStateBus
import AppStateContract
import Glibc
import Linux
import SessionRules
import Systemd
import Windows

/// Sends the daemon the user's rules for each application (`[Application PATTERN]`), however it was registered, and
/// again whenever they change.
final class RuleKeeper: DaemonSpeaker {
    private let line: DaemonLine
    private let journal: Journal
    private let log: ((String) -> Void)?
    private let configured: (String) -> Void
    private let proc = Proc()
    /// What the daemon has been sent, by the application's object; nil: no rule.
    private var told: [String: Told?] = [:]
    private var wanted: [String: Told?] = [:]
    /// The properties of registered applications, by their objects. All but the program do not change.
    private var known: [String: (pid: Int32, traits: Traits)] = [:]

    /// The commands to run, by the main processes of applications.
    private(set) var commands: [Int32: SuspendCommands.Commands] = [:]
    /// The main processes of applications that are suspended even while they are visible.
    private(set) var restingInSight: Set<Int32> = []

    /// The rules that name callers whose calls do not count, by the main processes of applications.
    private var ignoring: [Int32: Rule] = [:]

    private var subject: Subject?

    /// Everything that determines the rules of applications.
    private struct Subject: Equatable {
        let rules: [Rule]
        let entries: [Int32: Registry.Entry]
        let seenWindows: Set<SeenWindow>
        let onBattery: Bool
    }

    /// All rules for an application, combined into one.
    private struct Told: Equatable {
        let name: String
        let rule: Rule
    }

    private struct SeenWindow: Hashable {
        let pid: UInt32
        let appID: String
    }

    /// A connection to the bus may have 128 replies pending: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 16

    /// - Parameters:
    ///   - deaf: called if the bus refuses a match rule for the daemon.
    ///   - log: gets a line for each rule that is sent.
    ///   - configured: gets the application's object when the daemon has taken another rule for it.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, journal: Journal,
        log: ((String) -> Void)?, configured: @escaping (String) -> Void
    ) throws(BusFailure) {
        self.journal = journal
        self.log = log
        self.configured = configured
        line = try DaemonLine(bus: bus, loop: loop, deaf: deaf, journal: journal)
        line.speaker = self
    }

    /// Finds the rules of all applications.
    ///
    /// - Parameters:
    ///   - entries: the registered applications, by their main processes.
    ///   - windows: all windows.
    ///   - onBattery: whether the machine runs on battery.
    func apply(
        _ configuration: Configuration, to entries: [Int32: Registry.Entry], with windows: [Report.Window],
        onBattery: Bool
    ) {
        // Titles are left out, because they change all the time.
        let seenWindows = Set(windows.map { SeenWindow(pid: $0.pid, appID: $0.observed.appID) })
        let subject = Subject(
            rules: configuration.rules, entries: entries, seenWindows: seenWindows, onBattery: onBattery)
        guard subject != self.subject else { return line.proceed() }
        self.subject = subject
        let paths = Set(entries.values.map(\.path))
        known = known.filter { paths.contains($0.key) }
        told = told.filter { paths.contains($0.key) }
        for (pid, entry) in entries where known[entry.path] == nil {
            // The applications of another user are subject to that user's rules.
            guard let owner = try? proc.status(pid).owner, owner.isWholly(getuid()) else { continue }
            known[entry.path] = (pid, Traits(of: pid, id: entry.name, proc: proc))
        }
        let classes = configuration.rules.isEmpty ? [:] : Self.classes(of: windows, among: entries, proc)
        wanted = known.mapValues { pid, traits in
            var traits = traits
            // A launched application is registered before it executes its program, and a script may execute another one.
            if let program = try? proc.program(of: pid) { traits[.program] = [program] }
            traits[.windowClass] = classes[pid] ?? []
            let rules = configuration.rules(for: traits).map(\.rule).filter {
                $0.counts(onBattery: onBattery)
            }
            return Rule.combined(rules).map {
                // Both files may have a rule for a pattern. The daemon takes names of up to 255 bytes.
                var patterns: [String] = []
                for rule in rules where !patterns.contains(rule.pattern) { patterns.append(rule.pattern) }
                let name = patterns.joined(separator: Rule.separator)
                return Told(name: ObservedWindow.text(name.utf8), rule: $0)
            }
        }
        (commands, restingInSight, ignoring) = ([:], [], [:])
        for (path, (pid, _)) in known {
            guard case let told?? = wanted[path] else { continue }
            let isInactiveEnough = told.rule.suspendWhen == .inactive
            if isInactiveEnough { restingInSight.insert(pid) }
            if told.rule.ignoreCallers != nil { ignoring[pid] = told.rule }
            guard let id = entries[pid]?.name, told.rule.execSuspend != nil || told.rule.execResume != nil
            else { continue }
            commands[pid] = SuspendCommands.Commands(
                id: id, suspend: told.rule.execSuspend, resume: told.rule.execResume,
                isInactiveEnough: isInactiveEnough)
        }
        line.proceed()
    }

    /// Whether a call by this process does not count as a demand for the application.
    func ignores(_ caller: Int32, calling application: Int32) -> Bool {
        guard caller > 0, let rule = ignoring[application] else { return false }
        return rule.ignores(caller: proc.name(of: caller))
    }

    private static func classes(
        of windows: [Report.Window], among entries: [Int32: Registry.Entry], _ proc: Proc
    ) -> [Int32: Set<String>] {
        var classes: [Int32: Set<String>] = [:]
        for window in windows where !window.observed.isShared {
            guard let pid = Int32(exactly: window.pid),
                let main = proc.lineage(of: pid).map(\.pid).first(where: { entries[$0] != nil })
            else { continue }
            classes[main, default: []].insert(window.observed.appID)
        }
        return classes
    }

    func speak() throws {
        let due = wanted.filter { path, rule in told[path].map { $0 != rule } ?? true }
        for (path, rule) in due.prefix(Self.mostCalls) {
            try line.call(
                ApplicationMethod.configure, at: path,
                { try $0.appendDictionary(rule.map { $0.rule.entries(named: $0.name) } ?? []) },
                refused: { [unowned self] error in
                    // It has ended, or its user's rule no longer adopts it.
                    let isGone = ErrorName(rawValue: error.name) == .noSuchApplication
                    if isGone || !line.tryAgain("does not accept the rule for \(path)", error) {
                        told[path] = .some(rule)
                    }
                },
                answered: { [unowned self] _ in
                    line.haveRoom()
                    told[path] = .some(rule)
                    configured(path)
                })
            if let rule { log?("\(ApplicationMethod.configure.rawValue) \(path): \(rule.name)") }
        }
    }

    /// Rules outlast a daemon, but this may be another daemon, to which another client has sent rules.
    func forget() { told = [:] }
}

extension Rule {
    /// The entries for `Configure`.
    fileprivate func entries(named name: String) -> [(String, Variant)] {
        var entries: [(String, Variant)] = [(RuleKey.rule.rawValue, .string(name))]
        if let suspension { entries.append((RuleKey.suspension.rawValue, .string(suspension.rawValue))) }
        if let reclaimable { entries.append((RuleKey.reclaimable.rawValue, .bool(reclaimable))) }
        if let backgroundGrace {
            entries.append((RuleKey.backgroundGrace.rawValue, .uint64(backgroundGrace)))
        }
        if let drainEvery {
            entries.append((RuleKey.drainEvery.rawValue, .uint64(drainEvery == 0 ? .never : drainEvery)))
        }
        if let drainFor { entries.append((RuleKey.drainFor.rawValue, .uint64(drainFor))) }
        if let suspendWhen { entries.append((RuleKey.suspendWhen.rawValue, .string(suspendWhen.rawValue))) }
        if let backgroundCPUQuota {
            entries.append((RuleKey.backgroundCPUQuota.rawValue, .uint32(backgroundCPUQuota)))
        }
        if let unsavedMark { entries.append((RuleKey.unsavedMark.rawValue, .bool(unsavedMark))) }
        if let relaunchReclaimed {
            entries.append((RuleKey.relaunchReclaimed.rawValue, .bool(relaunchReclaimed)))
        }
        if let keepWhile {
            // Otherwise the daemon would not wait for the command.
            let words = execSuspend == nil ? keepWhile : keepWhile + [ObjectionReason.command.rawValue]
            entries.append((RuleKey.keepWhile.rawValue, .strings(words)))
        }
        return entries
    }
}

import AppStateBus
import AppStateContract
import Glibc
import Linux
import SessionRules
import Windows

/// The rules of session.conf for each registered application, however it was registered (`[Application PATTERN]`).
struct Rules {
    /// The rule for each application, by its object; nil: there is none.
    private(set) var wanted: [String: NamedRule?] = [:]
    /// The commands to run, by the main processes of applications.
    private(set) var commands: [Int32: SuspendCommands.Commands] = [:]
    /// The rules that name callers whose calls do not count, by the main processes of applications.
    private var ignoring: [Int32: Rule] = [:]
    private let proc = Proc()
    /// The properties of registered applications, by their objects. All but the program do not change.
    private var known: [String: (pid: Int32, traits: Traits)] = [:]
    private var subject: Subject?

    /// Everything that determines the rules of applications.
    private struct Subject: Equatable {
        let rules: [Rule]
        let entries: [Int32: Applications.Entry]
        let seenWindows: Set<SeenWindow>
        let onBattery: Bool
    }

    /// Finds the rules of all applications.
    ///
    /// - Parameters:
    ///   - entries: the registered applications, by their main processes.
    ///   - windows: all windows.
    ///   - onBattery: whether the machine runs on battery.
    mutating func apply(
        _ configuration: Configuration, to entries: [Int32: Applications.Entry],
        with windows: [ReportedWindow],
        onBattery: Bool
    ) {
        let titled = configuration.rules.filter { $0.title != nil }
        let seenWindows = SeenWindow.all(of: windows, titled: titled)
        let subject = Subject(
            rules: configuration.rules, entries: entries, seenWindows: seenWindows, onBattery: onBattery)
        guard subject != self.subject else { return }
        self.subject = subject
        let paths = Set(entries.values.map(\.path))
        known = known.filter { paths.contains($0.key) }
        for (pid, entry) in entries where known[entry.path] == nil {
            // The applications of another user are subject to that user's rules.
            guard let owner = try? proc.status(pid).owner, owner.isWholly(getuid()) else { continue }
            known[entry.path] = (pid, Traits(of: pid, id: entry.name, proc: proc))
        }
        let owned = configuration.rules.isEmpty ? [:] : owned(seenWindows, among: Set(entries.keys))
        (wanted, commands, ignoring) = ([:], [:], [:])
        for (path, (pid, traits)) in known {
            var traits = traits
            // A launched application is registered before it executes its program, and a script may execute another one.
            if let program = try? proc.program(of: pid) { traits[.program] = [program] }
            traits[.windowClass] = Set(owned[pid, default: []].map(\.appID))
            let titles = owned[pid, default: []].reduce(into: Set<String>()) { $0.formUnion($1.titles) }
            let rule = NamedRule(
                configuration.rules(for: traits).map(\.rule).filter {
                    $0.counts(onBattery: onBattery, titles: titles)
                })
            wanted[path] = .some(rule)
            if let rule, rule.rule.ignoreCallers != nil { ignoring[pid] = rule.rule }
            if let id = entries[pid]?.name, let rule = rule?.rule,
                rule.execSuspend != nil || rule.execResume != nil
            {
                commands[pid] = SuspendCommands.Commands(
                    id: id, suspend: rule.execSuspend, resume: rule.execResume)
            }
        }
    }

    /// Whether a call by this process does not count as a demand for the application.
    func ignores(_ caller: Int32, calling application: Int32) -> Bool {
        guard caller > 0, let rule = ignoring[application] else { return false }
        return rule.ignores(caller: proc.name(of: caller))
    }

    /// The windows of each application, by its main process.
    private func owned(_ windows: Set<SeenWindow>, among registered: Set<Int32>) -> [Int32: [SeenWindow]] {
        var owned: [Int32: [SeenWindow]] = [:]
        for window in windows {
            guard let main = proc.application(of: window.pid, among: registered) else { continue }
            owned[main, default: []].append(window)
        }
        return owned
    }
}

/// What rules ask of a window.
struct SeenWindow: Hashable {
    let pid: Int32
    let appID: String
    /// The patterns of rules that its title matches. Titles themselves change all the time.
    let titles: Set<String>

    /// Those of which it is known to which process they belong.
    ///
    /// - Parameter titled: the rules with a pattern of titles.
    static func all(of windows: [ReportedWindow], titled: [Rule] = []) -> Set<SeenWindow> {
        Set(
            windows.filter { !$0.observed.isShared }.compactMap { window in
                Int32(exactly: window.pid).map { pid in
                    SeenWindow(
                        pid: pid, appID: window.observed.appID,
                        titles: Set(
                            titled.filter { $0.matches(title: window.observed.title) }.compactMap(\.title)))
                }
            })
    }
}

/// All rules for an application, combined into one.
struct NamedRule: Equatable {
    let name: String
    let rule: Rule

    /// Nil: there is no rule.
    init?(_ rules: [Rule]) {
        guard let rule = Rule.combined(rules) else { return nil }
        // Both files may have a rule for a pattern. The daemon takes names of up to 255 bytes.
        var patterns: [String] = []
        for rule in rules where !patterns.contains(rule.pattern) { patterns.append(rule.pattern) }
        name = ObservedWindow.text(patterns.joined(separator: Rule.separator).utf8)
        self.rule = rule
    }

    /// The entries for `Configure`.
    var entries: [(String, Variant)] {
        var entries: [(RuleKey, Variant)] = [(.rule, .string(name))]
        func add<Value>(_ key: RuleKey, _ value: Value?, _ variant: (Value) -> Variant) {
            if let value { entries.append((key, variant(value))) }
        }
        add(.suspension, rule.suspension) { .string($0.rawValue) }
        add(.reclaimable, rule.reclaimable, Variant.bool)
        add(.backgroundGrace, rule.backgroundGrace, Variant.uint64)
        add(.drainEvery, rule.drainEvery) { .uint64($0 == 0 ? .never : $0) }
        add(.drainFor, rule.drainFor, Variant.uint64)
        add(.suspendWhen, rule.suspendWhen) { .string($0.rawValue) }
        add(.backgroundCPUQuota, rule.backgroundCPUQuota, Variant.uint32)
        add(.unsavedMark, rule.unsavedMark, Variant.bool)
        add(.relaunchReclaimed, rule.relaunchReclaimed, Variant.bool)
        // Otherwise the daemon would not wait for the command.
        let command = rule.execSuspend == nil ? [] : [ObjectionReason.command.rawValue]
        add(.keepWhile, rule.keepWhile) { .strings($0 + command) }
        return entries.map { ($0.0.rawValue, $0.1) }
    }
}

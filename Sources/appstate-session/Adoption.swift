import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import SessionRules
import Systemd
import Windows

/// Registers the applications of windows that are not registered yet, if the configuration names them
/// (`[Session] Adopt=`, or a rule).
///
/// An adopted application stays registered until its process ends or another process unregisters it, with or without
/// windows, and with or without this agent: a registration has no owner. An application that another process
/// unregisters is not adopted again. Both rules also apply after the connection to the bus was lost. When a
/// process registers itself and replaces its adopted application, we no longer manage it.
final class Adoption {
    /// Nil: there is no connection.
    private var bus: Bus?
    private let journal: Journal
    private let log: ((String) -> Void)?
    private let proc = Proc()
    private let entries: DesktopEntries
    private var configuration: Configuration
    /// All registered applications, by PID. Nil: the daemon has not reported them yet.
    private var registered: [Int32: Applications.Entry]?
    private var adopted: [ProcessIdentity: Adopted] = [:]
    /// Processes that must not be adopted: the daemon has refused them, or another process has unregistered
    /// them.
    private var declined: Set<ProcessIdentity> = []
    /// Processes that we have unregistered ourselves and whose removal the daemon has not announced yet.
    private var released: Set<Int32> = []
    private var windows: Set<SeenWindow> = []
    private var desktop: Set<Int32> = []
    /// Windows that were examined, and need not be examined again as long as nothing else changes.
    private var seen: Set<SeenWindow> = []
    /// Candidates whose turn has not come yet, the oldest first: one may turn out to be part of another.
    private var queue: [Candidate] = []
    /// The registration that the daemon has not answered yet. There is one at a time.
    private var call: Slot?

    private struct Adopted {
        let entry: Applications.Entry
        /// The processes from the window's process to the application's main process.
        let lineage: [Int32]
        let traits: Traits
    }

    /// - Parameter log: gets a line for each application that is adopted or released.
    init(
        configuration: Configuration, entries: DesktopEntries, journal: Journal, log: ((String) -> Void)?
    ) {
        self.configuration = configuration
        self.entries = entries
        self.journal = journal
        self.log = log
    }

    /// Switches to another connection; nil: there is none. On a new connection the registered applications
    /// are not known yet.
    func use(_ bus: Bus?) {
        call = nil
        learn(nil)
        self.bus = bus
    }

    /// Whether the configuration wants the application to be adopted. A rule does so for all applications that it
    /// matches.
    private func wants(_ traits: Traits) -> Bool {
        adopts(traits) || !configuration.rules(for: traits).isEmpty
    }

    /// Processes the current windows. No application is registered for a window that may belong to another
    /// process.
    ///
    /// - Parameter desktop: the desktop's own processes.
    func look(at windows: [ReportedWindow], on desktop: Set<Int32>) {
        let seenWindows = SeenWindow.all(of: windows)
        guard seenWindows != self.windows || desktop != self.desktop else { return }
        if desktop != self.desktop { seen = [] }
        (self.windows, self.desktop) = (seenWindows, desktop)
        seen.formIntersection(seenWindows)
        adopt()
    }

    /// Takes all registered applications; nil: they are not known.
    func learn(_ entries: [Int32: Applications.Entry]?) {
        let before = registered
        registered = entries
        guard let entries else {
            (released, queue, seen) = ([], [], [])
            return
        }
        adopted = adopted.filter { entries[$0.key.pid] == $0.value.entry }
        // A process that is registered now was not unregistered for good. For example, its own registration has
        // replaced ours, and may end in turn.
        declined = declined.filter { entries[$0.pid] == nil }
        if before == nil { letGo() }
        giveWay()
        // A process that belonged to an application that is gone may be an application of its own now.
        if before?.keys.contains(where: { entries[$0] == nil }) ?? true { seen = [] }
        adopt()
    }

    /// Handles a process that was unregistered and keeps running.
    func leave(_ pid: Int32) {
        guard released.remove(pid) == nil, let process = try? proc.identity(of: pid) else { return }
        decline(process)
    }

    /// Applies another configuration. Adopted applications that it does not name are released.
    func configure(_ configuration: Configuration) {
        self.configuration = configuration
        letGo()
        (declined, queue, seen) = ([], [], [])
        adopt()
    }

    // MARK: Adopting

    private func adopt() {
        guard let bus, let registered, call == nil else { return }
        let unseen = windows.subtracting(seen)
        if !unseen.isEmpty {
            seen = windows
            let desktop = DesktopProcesses(desktop, proc: proc)
            queue += unseen.filter { registered[$0.pid] == nil }.compactMap { window in
                Candidate(
                    windowOf: window.pid, appID: window.appID, on: desktop, proc: proc,
                    entry: { entries.id(ofClass: $0, program: $1) }, isApart: isApart)
            }.filter { wants($0.traits) }
            queue.sort { ($0.process.startTime, $0.process.pid) < ($1.process.startTime, $1.process.pid) }
        }
        while call == nil, !queue.isEmpty {
            let candidate = queue.removeFirst()
            if declined.contains(candidate.process) { continue }
            if candidate.lineage.contains(where: { registered[$0.pid] != nil }) { continue }
            register(candidate, over: bus)
        }
    }

    /// Whether the configuration names an application by traits that an ancestor of its process does not have: a game
    /// below its launcher. What names both, such as `*`, does not tell them apart.
    private func isApart(_ traits: Traits, _ ancestor: Int32) -> Bool {
        let program = try? proc.program(of: ancestor)
        let classes = Set(windows.filter { $0.pid == ancestor }.map(\.appID))
        let id = classes.lazy.compactMap { [self] in entries.id(ofClass: $0, program: program) }.first
        var other = Traits(of: ancestor, id: id ?? program ?? "", proc: proc)
        other[.windowClass] = classes
        return configuration.rules(for: traits).contains { $0.rule.match(other) == nil }
            || adopts(traits) && !adopts(other)
    }

    private func adopts(_ traits: Traits) -> Bool {
        configuration.adopt.matches(anyOf: traits[.windowClass].union(traits[.id]))
    }

    private func register(_ candidate: Candidate, over bus: Bus) {
        let process = candidate.process
        do {
            // The descriptor is opened before the identity is checked: a process that has reused the PID has another
            // start time.
            let descriptor = try PidFD(pid: process.pid)
            guard try proc.identity(of: process.pid) == process else { return }
            // `DaemonConnection` sends the settings of rules, because they must not outlast the rules.
            let message = try bus.newCall(ManagerMethod.registerProcess)
            try message.append(candidate.id.rawValue)
            try message.append(descriptor: descriptor.rawValue)
            try message.appendDictionary([
                (RegisterOption.suspension.rawValue, .string(configuration.suspension.rawValue)),
                // The process has not asked to be treated as an application.
                (RegisterOption.reclaimable.rawValue, .bool(false)),
                (RegisterOption.adopted.rawValue, .bool(true)),
            ])
            call = try bus.callAsync(message) { [unowned self] reply in
                call = nil
                if let error = reply.error { refused(candidate, error) } else { taken(candidate, reply) }
                adopt()
            }
        } catch {
            // The process has ended, or the connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func taken(_ candidate: Candidate, _ reply: borrowing Message) {
        guard let path = try? reply.readObjectPath() else { return }
        let main = candidate.lineage.prefix { $0 != candidate.process } + [candidate.process]
        let entry = Applications.Entry(name: candidate.id.rawValue, path: path)
        adopted[candidate.process] = Adopted(
            entry: entry, lineage: main.map(\.pid), traits: candidate.traits)
        log?("RegisterProcess \(candidate.id) pid \(candidate.process.pid)")
        journal.log(.info, "adopted \(candidate.id), process \(candidate.process.pid)")
        // The daemon announces this application only after this answer. It may have announced others before.
        registered?[candidate.process.pid] = entry
        // The configuration may have changed since the request.
        letGo()
        giveWay()
    }

    private func refused(_ candidate: Candidate, _ error: MethodError) {
        // The process registered itself first, or it has ended; or there is no daemon, and the next one first reports which
        // applications are registered.
        let isPassing = [.alreadyRegistered, .noSuchProcess, nil].contains(ErrorName(rawValue: error.name))
        journal.log(
            isPassing ? .debug : .notice,
            "\(candidate.id), process \(candidate.process.pid), is not adopted: \(error)")
        if !isPassing { decline(candidate.process) }
    }

    private func decline(_ process: ProcessIdentity) {
        declined = declined.filter { (try? proc.identity(of: $0.pid)) == $0 }
        declined.insert(process)
    }

    // MARK: Releasing

    /// Unregisters adopted applications that should no longer be adopted, as soon as the registered
    /// applications are known.
    private func letGo() {
        guard registered != nil else { return }
        for (process, application) in adopted where !wants(application.traits) {
            released.insert(process.pid)
            unregister(process, application.entry)
        }
    }

    /// Unregisters applications that were adopted only for windows of a process that is registered now. The adopted
    /// process is an ancestor of that process, for example the program that starts it in a sandbox. The windows then
    /// belong to an application without an adoption.
    private func giveWay() {
        for (process, application) in adopted
        where application.lineage.contains(where: { $0 != process.pid && registered?[$0] != nil })
            && !hasWindow(process)
        {
            unregister(process, application.entry)
        }
    }

    /// Whether one of the windows belongs to the process or to a descendant that is not registered.
    private func hasWindow(_ process: ProcessIdentity) -> Bool {
        windows.contains { window in
            proc.lineage(of: window.pid).first { registered?[$0.pid] != nil || $0 == process } == process
        }
    }

    private func unregister(_ process: ProcessIdentity, _ application: Applications.Entry) {
        adopted[process] = nil
        // If it has ended, or has registered itself in place of the adopted application, this changes nothing.
        guard let bus, (try? bus.send(bus.newCall(ApplicationMethod.unregister, at: application.path))) != nil
        else { return }
        log?("Unregister \(application.name) pid \(process.pid)")
        journal.log(.info, "\(application.name), process \(process.pid), is no longer adopted")
    }
}
